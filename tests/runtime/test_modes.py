"""What an illegal event and a leak lead to: strict raises, observe counts, enforce repairs."""

import logging

import pytest
from runtime_support import asked, lifecycle, loaded, transferring

from hicache_fsm.runtime import AttemptKey, Completion, IllegalTransition


def test_strict_mode_raises_with_the_history_of_the_attempt() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    asked(life, key)
    with pytest.raises(IllegalTransition) as caught:
        life.admit(key)
    assert (caught.value.machine, caught.value.event, caught.value.state) == ("prefetch", "admit", "probing")
    assert [step.event for step in caught.value.history] == ["issue"]
    assert str(caught.value).startswith("r#0: prefetch")


def test_an_attempt_that_ended_is_explained_by_its_history() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    life.abort(key)
    with pytest.raises(IllegalTransition, match="the attempt is aborted") as caught:
        life.abort(key)
    assert [step.state for step in caught.value.history] == ["aborted"]


def test_an_attempt_that_never_was_is_unknown() -> None:
    with pytest.raises(IllegalTransition, match="the attempt is unknown"):
        lifecycle().admit(AttemptKey("nobody", 0))


def test_an_illegal_event_changes_nothing() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    op = transferring(life, key)
    with pytest.raises(IllegalTransition):
        life.issue(key)
    assert (life.state(key), life.operation(key), life.occupied_tokens) == ("transferring", op, 96)
    assert life.check() == []


def test_the_history_stays_short() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    for _ in range(100):
        life.issue(key, asks=False, why="too_short")
    assert 16 <= len(life.history(key)) <= 32


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_observe_and_enforce_count_an_illegal_event_and_tell_it_once(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    life = lifecycle(on_illegal=mode)
    key = life.enqueue("r", 96)
    asked(life, key)
    with caplog.at_level(logging.WARNING):
        assert [life.admit(key), life.admit(key)] == [0, 0]
    assert life.illegal == {("prefetch", "admit", "probing"): 2}
    assert len(caplog.records) == 1
    assert life.state(key) == "probing"


def test_observe_mode_keeps_the_attempt_of_an_id_that_is_queued_twice() -> None:
    life = lifecycle(on_illegal="observe")
    assert life.enqueue("r", 96) == life.enqueue("r", 96)
    assert (life.waiting, life.illegal.total()) == (1, 1)


def test_the_unguarded_door_leaks_and_the_check_says_what() -> None:
    life = lifecycle("seed", interval=2)
    key, other = life.enqueue("r", 96), life.enqueue("s", 96)
    loaded(life, key)
    life.missed(other, asked(life, other))
    life.abandon(key)
    life.abandon(other)
    found = {(violation.invariant, violation.key) for violation in life.check()}
    assert found == {
        ("no-residue", key),
        ("pin-owned", key),
        ("no-residue", other),
        ("marker-owned", other),
    }


def test_observe_mode_leaves_a_leak_alone() -> None:
    life = lifecycle("seed", interval=2, on_illegal="observe")
    key = life.enqueue("r", 96)
    loaded(life, key)
    life.abandon(key)
    life.begin_pass()
    assert (life.pinned_tokens, life.occupied_tokens) == (64, 96)


def test_enforce_mode_repairs_what_the_unguarded_door_left() -> None:
    life = lifecycle("seed", interval=2, on_illegal="enforce")
    keys = [life.enqueue(rid, 96) for rid in "abc"]
    loaded(life, keys[0])
    late = transferring(life, keys[1])
    life.missed(keys[2], asked(life, keys[2]))
    for key in keys:
        life.abandon(key)
    life.begin_pass()
    assert life.repairs == {"hold": 1, "pin": 2, "operation": 1, "marker": 1}
    assert (life.pinned_tokens, life.occupied_tokens, life.orphans) == (0, 96, [late])
    life.post(Completion(late, "done"))
    life.begin_pass()
    assert life.occupied_tokens == 0


def test_only_the_dead_holders_pin_lapses() -> None:
    life = lifecycle("seed", interval=2, on_illegal="enforce")
    dead, alive = life.enqueue("a", 96), life.enqueue("b", 96)
    asked(life, dead)
    asked(life, alive)
    life.abandon(dead)
    life.begin_pass()
    assert life.pinned_tokens == 64


def test_an_answer_for_a_request_that_left_by_the_unguarded_door_frees_its_pages() -> None:
    life = lifecycle("seed", interval=2)
    key = life.enqueue("r", 96)
    op = transferring(life, key)
    life.abandon(key)
    life.post(Completion(op, "done"))
    life.begin_pass()
    assert life.occupied_tokens == 0


@pytest.mark.parametrize(
    "options",
    [
        {"profile": "nothing"},
        {"page_size": 0},
        {"interval": -1},
        {"max_attempts": -1},
        {"pool_tokens": -1},
        {"host_tokens": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"profile|count"):
        lifecycle(**options)


@pytest.mark.parametrize(
    ("event", "call"),
    [
        ("issue", lambda life, key: life.issue(key, asks=False, why="because")),
        ("abort", lambda life, key: life.abort(key, "because")),
        ("hit", lambda life, key: life.hit(key, 1, 96, 96, False, "because")),
        ("enqueue", lambda life, key: life.enqueue("s", 1, again="because")),
    ],
)
def test_an_unknown_reason_is_refused(event: str, call) -> None:  # type: ignore[no-untyped-def]
    life = lifecycle()
    with pytest.raises(ValueError, match=f"no reason for {event}"):
        call(life, life.enqueue("r", 96))
