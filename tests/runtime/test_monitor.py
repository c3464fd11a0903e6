"""The monitor sees each witness of the spec that the runtime can show, and raises no false alarm."""

import pytest
from runtime_support import (
    ANCHOR,
    asked,
    behind_a_head,
    changed,
    lifecycle,
    loaded,
    passes_until_offered,
    transferring,
)

from hicache_fsm.runtime import Anchor, Completion, HiCacheLifecycle, IllegalTransition
from hicache_fsm.runtime.monitor import Monitor
from hicache_fsm.spec import apply_witness, load_spec

SPEC = load_spec()


def mutated(invariant: str, **options: object) -> HiCacheLifecycle:
    """A lifecycle on the spec with the invariant's witness in it."""
    spec = apply_witness(SPEC, SPEC.invariants[invariant].witness)
    return lifecycle(spec.profiles["recommended"], spec=spec, **options)


def seen(life: HiCacheLifecycle) -> set[str]:
    assert life.monitor is not None
    return set(life.monitor.counts)


def test_a_marker_that_outlives_its_attempt_is_seen() -> None:
    life = mutated("marker-owned")
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    life.abort(key)
    assert "marker-owned" in seen(life)


def test_a_marker_that_is_not_lowered_by_its_sweep_is_seen() -> None:
    life = mutated("marker-once")
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    life.begin_pass()
    assert seen(life) == {"marker-once"}


def test_one_re_issue_too_many_is_seen() -> None:
    life = mutated("attempts-bounded", max_attempts=1)
    key = life.enqueue("r", 96)
    for _ in range(2):
        life.missed(key, life.lose_match(key) or 0)
    assert seen(life) == {"attempts-bounded"}


def test_an_answer_that_changes_a_foreign_attempt_is_seen() -> None:
    life = mutated("one-in-flight")
    old_key = life.enqueue("r", 96)
    old = asked(life, old_key)
    life.abort(old_key)
    asked(life, life.enqueue("r", 96))
    life.post(Completion(old, "miss"))
    life.begin_pass()
    assert seen(life) == {"one-in-flight"}


def test_a_marker_raised_while_retries_are_off_is_seen() -> None:
    life = mutated("disabled-inert", interval=0)
    key = life.enqueue("r", 96)
    life.missed(key, asked(life, key))
    assert seen(life) == {"disabled-inert"}


def test_a_pin_over_the_cap_is_seen() -> None:
    life = mutated("pin-cap")
    life.pin(life.enqueue("r", 96), Anchor("n", 1025))
    assert seen(life) == {"pin-cap"}


def test_a_pin_that_outlives_its_holder_is_seen() -> None:
    life = mutated("pin-owned")
    key = life.enqueue("r", 96)
    asked(life, key)
    life.abort(key)
    assert "pin-owned" in seen(life)


def test_a_hold_that_outlives_its_attempt_is_seen() -> None:
    life = mutated("no-residue")
    key = life.enqueue("r", 96)
    loaded(life, key)
    life.abort(key)
    assert seen(life) == {"no-residue"}


def test_pages_that_an_orphan_leaves_to_nobody_are_seen() -> None:
    life = mutated("conservation")
    key = life.enqueue("r", 96)
    op = transferring(life, key)
    life.abort(key)
    life.post(Completion(op, "done"))
    life.begin_pass()
    assert seen(life) == {"conservation"}
    assert {violation.invariant for violation in life.check()} == {"conservation"}


def test_a_node_claimed_twice_is_seen() -> None:
    life = mutated("load-exclusive")
    life.load("n", "load-back 1")
    life._core.nodes._nodes["n"].state = life._core.nodes.table.state_ids["evicted"]
    life.load("n", "load-back 2")
    assert seen(life) == {"load-exclusive"}


def test_a_tombstone_freed_on_both_sides_is_seen() -> None:
    life = mutated("tombstone-once")
    life.tombstone("n")
    life.evict("n")
    assert seen(life) == {"tombstone-once"}


def test_a_belief_that_survives_the_evidence_is_seen() -> None:
    life = lifecycle(changed("recommended", believes_failed=True))
    life.write_failed("kv", life.write("kv", ["p"]))
    assert seen(life) == {"belief-evidence"}


def test_a_marker_for_a_question_that_was_never_asked_is_seen() -> None:
    life = mutated("asked-armed")
    life.issue(behind_a_head(life), asks=False, why="too_short")
    assert seen(life) == {"asked-armed"}


def test_a_re_issue_before_its_time_is_seen() -> None:
    prefetch = SPEC.machines["prefetch"]
    monitor = Monitor(
        interval=3,
        max_attempts=8,
        dense=False,
        known_hit_immediate=True,
        pin_cap=0,
        host_pages=None,
        live=frozenset(prefetch.states),
    )
    key = ("r", 0)
    ask = next(row for row in prefetch.rows("queued", "issue") if row.dest == "probing")
    miss = next(row for row in prefetch.rows("probing", "miss") if row.dest == "missed")
    wait = next(row for row in prefetch.rows("missed", "sweep") if row.dest == "pending")
    again = next(row for row in prefetch.rows("pending", "sweep") if row.dest == "retrying")
    monitor.begin(key, 0)
    for now, row in ((0, ask), (1, miss), (1, wait), (3, again)):
        monitor.step(now, key, row, 1, 0)
    assert set(monitor.counts) == {"paced"}
    assert "2 passes after its miss" in monitor.violations[0].message


def test_an_orphan_that_can_never_end_is_illegal_at_once() -> None:
    life = mutated("progress")
    key = life.enqueue("r", 96)
    op = asked(life, key)
    life.abort(key)
    with pytest.raises(IllegalTransition, match='operation: "end" in "orphan"'):
        life.missed(key, op)


def test_host_pages_beyond_the_pool_are_seen() -> None:
    life = lifecycle(host_tokens=None)
    assert life.monitor is not None
    life.monitor._host_pages = 4
    transferring(life, life.enqueue("r", 96))
    assert seen(life) == {"conservation"}


def test_a_sound_life_raises_no_alarm() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    passes_until_offered(life, key)
    op = life.issue(key, anchor=ANCHOR)
    assert op is not None
    life.hit(key, op, 32, 96)
    life.loaded(key, op)
    life.admit(key)
    assert life.check() == []
