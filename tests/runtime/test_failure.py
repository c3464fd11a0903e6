"""An effect that raises leaves the old state, and nothing acquired."""

from collections.abc import Callable

import pytest
from runtime_support import ANCHOR, Pools, asked, behind_a_head, lifecycle, loaded, transferring

from hicache_fsm.runtime import AttemptKey, Completion, HiCacheLifecycle

Act = Callable[[HiCacheLifecycle, AttemptKey], object]


def _nothing(life: HiCacheLifecycle, key: AttemptKey) -> None:
    pass


def _missed_twice_due(life: HiCacheLifecycle, key: AttemptKey) -> None:
    life.missed(key, asked(life, key))
    for _ in range(3):
        life.begin_pass()


def _orphan(life: HiCacheLifecycle, key: AttemptKey) -> None:
    transferring(life, key)
    life.abort(key)


CASES: list[tuple[str, Act, Act]] = [
    ("ask", _nothing, lambda life, key: life.issue(key, anchor=ANCHOR)),
    ("lock_anchor", _nothing, lambda life, key: life.issue(key, anchor=ANCHOR)),
    ("lock_anchor", _nothing, lambda life, key: life.pin(key, ANCHOR)),
    ("ask", _missed_twice_due, lambda life, key: life.issue(key)),
    ("lock_anchor", _missed_twice_due, lambda life, key: life.issue(key)),
    ("take_pages", asked, lambda life, key: life.hit(key, life.operation(key) or 0, 96, 96)),
    ("end_operation", asked, lambda life, key: life.missed(key, life.operation(key) or 0)),
    ("unlock_anchor", asked, lambda life, key: life.missed(key, life.operation(key) or 0)),
    ("unlock_anchor", asked, lambda life, key: life.unpin(key)),
    (
        "unlock_anchor",
        asked,
        lambda life, key: life.hit(key, life.operation(key) or 0, 96, 96, room=False, why="host_capacity"),
    ),
    ("stage_hold", transferring, lambda life, key: life.loaded(key, life.operation(key) or 0)),
    ("free_pages", transferring, lambda life, key: life.failed(key, life.operation(key) or 0)),
    ("cut_operation", transferring, lambda life, key: life.cut(key, 32)),
    ("orphan_operation", transferring, lambda life, key: life.abort(key)),
    ("unlock_anchor", loaded, lambda life, key: life.abort(key)),
    ("release_hold", loaded, lambda life, key: life.abort(key)),
    ("consume_hold", loaded, lambda life, key: life.admit(key)),
    ("unlock_anchor", loaded, lambda life, key: life.admit(key)),
    ("free_orphan_pages", _orphan, lambda life, key: life.loaded(key, life.orphans[0])),
    ("launch_write", _nothing, lambda life, key: life.write("kv", ["p0", "p1"])),
    ("claim", _nothing, lambda life, key: life.load("other", "load-back 1")),
]
ACQUIRES = {"ask", "lock_anchor", "take_pages", "launch_write", "claim"}


@pytest.mark.parametrize("when", ["fail_before", "fail_after"])
@pytest.mark.parametrize(("effect", "prepare", "act"), CASES)
def test_a_failing_effect_changes_no_state_acquires_nothing_and_may_be_tried_again(
    effect: str, prepare: Act, act: Act, when: str
) -> None:
    pools = Pools()
    life = lifecycle(executor=pools)
    key = behind_a_head(life)
    prepare(life, key)
    before = (life.state(key), life.spent(key), life.operation(key), life.pinned_tokens, life.occupied_tokens)
    owned = pools.snapshot()

    setattr(pools, when, effect)
    with pytest.raises(MemoryError):
        act(life, key)
    assert before == (
        life.state(key),
        life.spent(key),
        life.operation(key),
        life.pinned_tokens,
        life.occupied_tokens,
    )
    if effect in ACQUIRES:
        assert pools.snapshot() == owned

    setattr(pools, when, "")
    act(life, key)
    assert life.check() == []
    for waiting in [key, AttemptKey("head", 0)]:
        if life.state(waiting) not in ("aborted", "scheduled"):
            life.abort(waiting)
    for op in life.orphans:
        life.post(Completion(op, "fail"))
    life.begin_pass()
    pages, locks, *_ = pools.snapshot()
    assert (pages, locks) == ({}, {})


def test_a_posted_answer_whose_effect_failed_is_taken_in_by_the_next_pass() -> None:
    pools = Pools()
    life = lifecycle(executor=pools)
    key = life.enqueue("r", 96)
    life.post(Completion(asked(life, key), "hit", 96))
    pools.fail_before = "take_pages"
    with pytest.raises(MemoryError):
        life.begin_pass()
    pools.fail_before = ""
    life.begin_pass()
    assert life.state(key) == "transferring"


def test_the_executor_may_refuse_room_for_a_posted_hit() -> None:
    class Full(Pools):
        def room(self, key: AttemptKey, pages: int) -> str:
            return "rate_limited"

    life = lifecycle(executor=Full())
    key = life.enqueue("r", 96)
    life.post(Completion(asked(life, key), "hit", 96))
    life.begin_pass()
    assert life.state(key) == "parked"


def test_the_executor_may_refuse_room_for_a_parked_hit() -> None:
    class Full(Pools):
        full = True

        def room(self, key: AttemptKey, pages: int) -> str:
            return "host_capacity" if self.full else ""

    pools = Full()
    life = lifecycle(executor=pools)
    key = life.enqueue("r", 96)
    life.hit(key, asked(life, key), 96, 96, room=False, why="host_capacity")
    assert not life.unparked(key)
    assert life.state(key) == "parked"
    pools.full = False
    assert life.unparked(key)


def test_a_way_back_that_fails_does_not_stop_the_others() -> None:
    class Broken(Pools):
        def ask(
            self, key: AttemptKey, op: int, tokens: int, undo: Callable[[Callable[[], None]], None]
        ) -> None:
            super().ask(key, op, tokens, undo)
            undo(lambda: 1 / 0)  # type: ignore[arg-type,return-value]

    pools = Broken()
    life = lifecycle(executor=pools)
    key = life.enqueue("r", 96)
    pools.fail_before = "lock_anchor"
    with pytest.raises(ExceptionGroup):
        life.issue(key, anchor=ANCHOR)
    assert not pools.questions
