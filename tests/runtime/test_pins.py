"""Pins on anchors: early, idempotent, capped with headroom, one holder each (#36227, #37464)."""

import logging
from pathlib import Path

import pytest
from runtime_support import ANCHOR, Pools, asked, lifecycle, loaded, transferring

from hicache_fsm.runtime import (
    Anchor,
    AttemptKey,
    Completion,
    EventLog,
    HiCacheLifecycle,
    IllegalTransition,
    read_log,
)


def test_the_anchor_is_pinned_when_the_question_is_issued_36227() -> None:
    life = lifecycle()
    asked(life, life.enqueue("r", 96))
    assert life.pinned_tokens == ANCHOR.tokens


def test_upstream_before_the_default_pins_at_the_hit_only() -> None:
    life = lifecycle("sglang-0.5.23")
    key = life.enqueue("r", 96)
    op = asked(life, key)
    assert life.pinned_tokens == 0
    life.hit(key, op, 96, 96, anchor=Anchor("matched anew", 128))
    assert life.pinned_tokens == 128


def test_an_anchor_that_was_evicted_before_its_pin_at_the_hit_is_lost() -> None:
    life = lifecycle("sglang-0.5.23")
    key = life.enqueue("r", 96)
    op = asked(life, key, Anchor("node", 64))
    assert life.evict("node") == [key]
    life.hit(key, op, 96, 96)
    assert life.pinned_tokens == 0


def test_the_pin_at_hit_time_is_an_idempotent_second_chance_36227() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    transferring(life, key)
    assert life.pin(key, ANCHOR) == "held"
    assert life.pinned_tokens == ANCHOR.tokens


def test_a_hit_that_parks_gives_its_pin_back_and_takes_it_again_at_its_turn() -> None:
    pools = Pools()
    life = lifecycle(executor=pools, monitor=True)
    key = life.enqueue("r", 96)
    life.hit(key, asked(life, key), 96, 96, room=False, why="host_capacity")
    assert (life.state(key), life.pinned_tokens, pools.locks) == ("parked", 0, {})
    assert life.unparked(key)
    assert (life.state(key), life.pinned_tokens) == ("transferring", ANCHOR.tokens)
    assert life.check() == []


def test_what_a_parked_hit_gave_back_another_may_pin() -> None:
    life = lifecycle()
    parked, other = life.enqueue("parked", 96), life.enqueue("other", 96)
    whole = Anchor("node", life.settings.pin_cap)
    life.hit(parked, asked(life, parked, whole), 96, 96, room=False, why="host_capacity")
    life.hit(other, asked(life, other, whole), 96, 96)
    assert life.pinned_tokens == whole.tokens
    life.unparked(parked)
    assert life.pinned_tokens == whole.tokens, "it goes on unpinned"


def test_the_anchor_of_a_parked_hit_may_be_evicted_and_is_then_lost() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    life.hit(key, asked(life, key), 96, 96, room=False, why="host_capacity")
    assert life.evict(ANCHOR.node) == [key]
    life.unparked(key)
    assert life.pinned_tokens == 0


def test_upstream_of_the_seed_parks_with_its_pin() -> None:
    life = lifecycle("seed", interval=8)
    key = life.enqueue("r", 96)
    life.hit(key, asked(life, key), 96, 96, room=False, why="host_capacity")
    assert (life.state(key), life.pinned_tokens) == ("parked", ANCHOR.tokens)


def test_a_pin_refused_at_issue_gets_its_second_chance_at_the_hit() -> None:
    life = lifecycle()
    big, key = life.enqueue("big", 96), life.enqueue("r", 96)
    asked(life, big, Anchor("other", 1000))
    op = asked(life, key)
    assert life.pinned_tokens == 1000
    life.abort(big)
    life.hit(key, op, 96, 96)
    assert life.pinned_tokens == ANCHOR.tokens


@pytest.mark.parametrize(
    ("profile", "pool", "context", "cap"),
    [
        ("seed", 2048, 512, 1024),
        ("seed", 2048, 1500, 548),
        ("seed", 2048, 4096, 0),
        ("recommended", 2048, 1500, 532),
    ],
)
def test_the_cap_leaves_the_largest_request_its_room_36227(
    profile: str, pool: int, context: int, cap: int
) -> None:
    assert lifecycle(profile, pool_tokens=pool, max_context_len=context).settings.pin_cap == cap


@pytest.mark.parametrize("length", [None, 0])
def test_an_unknown_context_length_is_refused_unless_it_is_allowed_by_name_37464(
    length: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="context length is unknown"):
        HiCacheLifecycle(pool_tokens=2048, max_context_len=length)
    with caplog.at_level(logging.WARNING):
        life = HiCacheLifecycle(pool_tokens=2048, max_context_len=length, allow_unknown_context=True)
    assert life.settings.pin_cap == 1024
    assert "no headroom" in caplog.text


def test_a_pin_over_the_cap_is_skipped_and_one_over_what_is_left_is_busy() -> None:
    life = lifecycle()
    first, second = life.enqueue("a", 96), life.enqueue("b", 96)
    assert life.pin(first, Anchor("n1", 2000)) == "cap_skip"
    assert life.pin(first, Anchor("n2", 600)) == "locked"
    assert life.pin(second, Anchor("n3", 600)) == "cap_busy"
    assert life.pin_verdict(424) == "locked"
    assert life.pinned_tokens == 600


def test_tokens_are_counted_per_holder_and_given_back_by_each_once() -> None:
    life = lifecycle()
    keys = [life.enqueue(f"r{i}", 96) for i in range(3)]
    for key in keys:
        life.pin(key, ANCHOR)
    assert life.pinned_tokens == 3 * 64
    assert [life.unpin(keys[0]), life.unpin(keys[0])] == [64, 0]
    assert life.pinned_tokens == 2 * 64


def test_a_held_node_cannot_be_evicted_and_a_released_one_can_9601() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    life.pin(key, ANCHOR)
    with pytest.raises(IllegalTransition, match='node: "evict" in "pinned" is illegal'):
        life.evict("node")
    life.unpin(key)
    assert life.evict("node") == []


def test_the_eviction_of_an_unpinned_anchor_names_who_hangs_on_it_in_queue_order() -> None:
    life = lifecycle()
    keys = [life.enqueue(f"r{i}", 96) for i in range(3)]
    for key in reversed(keys):
        assert life.pin(key, Anchor("node", 2000)) == "cap_skip"
    assert life.evict("node", 2000) == keys
    assert life.pin(keys[0], Anchor("node", 2000)) == "anchor_lost"


def test_an_anchor_that_is_not_on_the_device_is_lost() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    assert life.pin(key, Anchor("node", 64, on_device=False)) == "anchor_lost"


def test_an_anchor_that_is_being_loaded_is_no_anchor() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    life.load("node", "load-back 1")
    assert life.pin(key, ANCHOR) == "anchor_lost"


@pytest.mark.parametrize("leave", ["admit", "abort", "abandon"])
def test_every_exit_unpins_9874(leave: str) -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    loaded(life, key)
    assert life.pinned_tokens == 64
    getattr(life, leave)(key)
    assert life.pinned_tokens == 0


def test_pinning_for_an_attempt_that_is_over_is_illegal() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    life.abort(key)
    with pytest.raises(IllegalTransition, match="the attempt is aborted"):
        life.pin(key, ANCHOR)


def test_a_load_back_that_wants_a_node_of_another_one_is_refused_35931() -> None:
    life = lifecycle()
    assert life.load("n", "load-back 1")
    assert not life.load("n", "load-back 2")
    with pytest.raises(IllegalTransition):
        life.loaded_back("n", "load-back 2")
    assert life.loaded_back("n", "load-back 1")
    assert life.check() == []


def test_a_tombstone_is_released_on_its_full_side_only_36637() -> None:
    life = lifecycle()
    life.tombstone("n")
    with pytest.raises(IllegalTransition):
        life.tombstone("n")
    life.evict("n")
    assert life.check() == []


def test_a_pin_that_locks_no_tokens_is_given_back_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle(log=EventLog(path))
    key = life.enqueue("r", 96)
    life.missed(key, asked(life, key, Anchor("root", 0)))
    life.admit(key)
    assert life.check() == []
    life.close()
    assert [line.event for line in read_log(path) if line.machine == "pin"] == ["pin", "unpin"]


def test_no_hit_waits_for_the_pin_budget_where_pins_are_early() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    op = asked(life, key)
    with pytest.raises(ValueError, match="hold and wait"):
        life.hit(key, op, 96, 96, room=False, why="pin_cap")
    assert life.state(key) == "probing"
    assert life.hit(key, op, 96, 96)


def test_where_pins_are_late_a_hit_may_wait_for_the_pin_budget() -> None:
    life = lifecycle("sglang-0.5.23")
    key = life.enqueue("r", 96)
    life.hit(key, asked(life, key), 96, 96, room=False, why="pin_cap")
    assert life.state(key) == "parked"


def test_an_executor_that_has_a_posted_hit_wait_for_the_pin_budget_is_told_and_the_answer_is_kept() -> None:
    class Capped(Pools):
        why = "pin_cap"

        def room(self, key: AttemptKey, pages: int) -> str:
            return self.why

    pools = Capped()
    life = lifecycle(executor=pools)
    key = life.enqueue("r", 96)
    life.post(Completion(asked(life, key), "hit", 96))
    with pytest.raises(ValueError, match="hold and wait"):
        life.begin_pass()
    pools.why = ""
    life.begin_pass()
    assert life.state(key) == "transferring"
