"""The retry of missed questions: markers, pacing, budget (#36227 and its successors)."""

from pathlib import Path

import pytest
from runtime_support import (
    SPEC,
    asked,
    behind_a_head,
    changed,
    lifecycle,
    loaded,
    passes_until_offered,
    transferring,
)

from hicache_fsm.replay import judge_file
from hicache_fsm.runtime import Completion, EventLog, IllegalTransition


def test_a_missed_question_is_asked_again_after_the_interval_and_may_hit_36227() -> None:
    life = lifecycle(interval=3)
    key = behind_a_head(life)
    life.post(Completion(asked(life, key), "miss"))
    assert passes_until_offered(life, key) == 1 + 3
    op = life.issue(key)
    assert op is not None
    assert life.state(key) == "retrying"
    assert life.hit(key, op, 96, 96)


def test_the_marker_is_one_shot_36227() -> None:
    life = lifecycle(interval=3)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    life.begin_pass()
    assert life.state(key) == "pending"
    offers = [key in life.begin_pass() for _ in range(3)]
    life.issue(key)
    assert offers == [False, False, True]
    assert not any(life.begin_pass() for _ in range(20))


@pytest.mark.parametrize("budget", [1, 2])
def test_a_marker_raised_twice_between_two_passes_is_served_once_36227(budget: int) -> None:
    life = lifecycle(max_attempts=budget)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    assert life.lose_match(key) is not None
    life.cut(key)
    life.begin_pass()
    assert [past.event for past in life.history(key)] == ["issue", "miss", "lose_match", "cut", "sweep"]
    assert life.check() == []


def test_a_second_miss_arms_again_36227() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    passes_until_offered(life, key)
    life.missed(key, life.issue(key) or 0)
    assert passes_until_offered(life, key) == 3


def test_the_budget_ends_the_retries_36227() -> None:
    life = lifecycle(max_attempts=2)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    for _ in range(2):
        passes_until_offered(life, key)
        life.missed(key, life.issue(key) or 0)
    life.begin_pass()
    assert (life.state(key), life.spent(key)) == ("exhausted", 2)


@pytest.mark.parametrize("leave", ["admit", "abort"])
@pytest.mark.parametrize("swept", [False, True])
def test_the_marker_drops_when_the_request_leaves_36227(leave: str, swept: bool) -> None:
    life = lifecycle()
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    if swept:
        life.begin_pass()
    getattr(life, leave)(key)
    assert not any(life.begin_pass() for _ in range(10))
    assert life.check() == []


def test_a_miss_after_the_drain_counts_from_the_next_pass() -> None:
    life = lifecycle(interval=2)
    key = behind_a_head(life)
    op = asked(life, key)
    life.begin_pass()
    life.missed(key, op)
    assert passes_until_offered(life, key) == 1 + 2


def test_offers_come_in_queue_order_whatever_order_the_answers_had() -> None:
    life = lifecycle()
    life.enqueue("head", 96)
    keys = [life.enqueue(f"r{i}", 96) for i in range(5)]
    ops = [asked(life, key) for key in keys]
    for op in reversed(ops):
        life.post(Completion(op, "miss"))
    assert [life.begin_pass() for _ in range(3)] == [[], [], keys]


def test_an_offer_that_is_not_served_is_made_again_and_costs_no_budget() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    passes_until_offered(life, key)
    assert life.begin_pass() == [key]
    assert life.spent(key) == 0


def test_an_offer_is_gone_once_it_was_served_even_within_its_pass() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    asked(life, key)
    life.lose_anchor(key)
    life.begin_pass()
    life.issue(key)
    life.cut(key)
    with pytest.raises(IllegalTransition, match='"issue" in "missed" is illegal'):
        life.issue(key)


def test_a_request_that_is_not_due_may_not_be_asked_again() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    life.begin_pass()
    with pytest.raises(IllegalTransition, match='"issue" in "pending" is illegal'):
        life.issue(key)


def test_the_head_of_the_queue_loses_its_paced_marker_39283() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    life.missed(key, asked(life, key))
    assert life.begin_pass() == []
    assert life.state(key) == "queued"


def test_the_head_keeps_its_marker_under_the_seed() -> None:
    life = lifecycle("seed", interval=2)
    key = life.enqueue("r", 96)
    life.missed(key, asked(life, key))
    life.begin_pass()
    assert life.state(key) == "pending"


def test_a_scheduler_that_reorders_its_queue_names_the_head() -> None:
    life = lifecycle()
    first, second = life.enqueue("a", 96), life.enqueue("b", 96)
    for key in (first, second):
        life.missed(key, asked(life, key))
    life.begin_pass(head=second)
    assert (life.state(first), life.state(second)) == ("pending", "queued")


def test_a_known_hit_is_asked_again_on_the_next_pass() -> None:
    life = lifecycle(interval=8)
    key = behind_a_head(life)
    asked(life, key)
    life.lose_anchor(key)
    assert life.begin_pass() == [key]
    assert life.issue(key) is not None


def test_a_known_hit_is_paced_like_a_miss_under_the_seed() -> None:
    life = lifecycle("seed", interval=3)
    key = behind_a_head(life)
    asked(life, key)
    life.lose_anchor(key)
    assert passes_until_offered(life, key) == 1 + 3


def test_a_span_too_short_to_ask_about_arms_nothing_40042() -> None:
    life = lifecycle()
    key = behind_a_head(life, tokens=3)
    assert life.issue(key, asks=False, why="too_short") is None
    assert life.state(key) == "queued"
    assert not any(life.begin_pass() for _ in range(10))
    assert life.spent(key) == 0


def test_a_span_too_short_to_ask_about_arms_a_marker_under_the_seed_36227() -> None:
    life = lifecycle("seed", interval=2)
    key = behind_a_head(life, tokens=3)
    life.issue(key, asks=False, why="too_short")
    assert (life.state(key), life.reason(key)) == ("missed", "too_short")
    assert {violation.invariant for violation in life.check()} == {"asked-armed"}


def test_declines_burn_the_budget_only_where_the_profile_says_40042() -> None:
    def spent(profile: str) -> int:
        life = lifecycle(profile, interval=2)
        key = behind_a_head(life)
        life.missed(key, asked(life, key))
        passes_until_offered(life, key)
        life.issue(key, asks=False, why="rate_limited")
        return life.spent(key)

    assert [spent(profile) for profile in ("seed", "sglang-0.5.23", "recommended")] == [1, 1, 0]


def test_a_failed_transfer_asks_again_except_upstream() -> None:
    def state(profile: str) -> str | None:
        life = lifecycle(profile, interval=2)
        key = behind_a_head(life)
        life.failed(key, transferring(life, key))
        return life.state(key)

    assert [state(profile) for profile in ("seed", "sglang-0.5.23", "recommended")] == [
        "queued",
        "queued",
        "missed",
    ]


def test_a_partial_hit_asks_for_its_tail_and_keeps_what_it_has() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    op = transferring(life, key, stored=32, wanted=96)
    life.loaded(key, op)
    assert (life.state(key), life.reason(key)) == ("missed", "partial_hit")
    assert life.admit(key) == 32


def test_a_deadline_is_not_a_miss_and_never_asks_again() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    asked(life, key)
    life.expire(key)
    assert life.state(key) == "exhausted"
    assert not any(life.begin_pass() for _ in range(10))


@pytest.mark.parametrize(
    ("provoke", "reason"),
    [
        (lambda life, key: life.missed(key, asked(life, key), "terminated"), "terminated"),
        (lambda life, key: life.missed(key, asked(life, key)), "below_threshold"),
        (lambda life, key: (asked(life, key), life.lose_anchor(key)), "anchor_lost"),
        (lambda life, key: life.issue(key, asks=False, why="rate_limited"), "rate_limited"),
        (lambda life, key: life.issue(key, asks=False, why="aux_alloc"), "aux_alloc"),
        (lambda life, key: life.issue(key, asks=False, why="too_short"), "too_short"),
        (lambda life, key: life.hit(key, asked(life, key), 96, 96, False, "host_capacity"), "host_capacity"),
    ],
)
def test_every_miss_is_recorded_with_its_reason(provoke, reason) -> None:  # type: ignore[no-untyped-def]
    life = lifecycle(changed("seed", parks=False), interval=2)
    key = behind_a_head(life)
    provoke(life, key)
    assert life.state(key) == "missed"
    assert (life.reason(key), life.misses) == (reason, {reason: 1})


def test_interval_zero_leaves_no_trace() -> None:
    life = lifecycle(interval=0)
    keys = [behind_a_head(life), life.enqueue("b", 96), life.enqueue("c", 96)]
    life.missed(keys[0], asked(life, keys[0]))
    asked(life, keys[1])
    life.lose_anchor(keys[1])
    life.loaded(keys[2], transferring(life, keys[2], stored=32))
    assert [life.state(key) for key in keys] == ["queued", "queued", "loaded"]
    assert not any(life.begin_pass() for _ in range(5))
    assert list(life._core.pacing.waiting()) == []
    assert life.check() == []


def test_the_seed_with_interval_zero_raises_markers_that_nobody_serves() -> None:
    life = lifecycle("seed", interval=0)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    assert not any(life.begin_pass() for _ in range(5))
    assert life.state(key) == "missed"
    assert {violation.invariant for violation in life.check()} == {"disabled-inert"}


def test_the_dense_path_is_inert_36227() -> None:
    life = lifecycle(changed("seed", dense=True), interval=2)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    assert life.state(key) == "queued"
    assert life.check() == []


def spent_after(profile: str, why: str) -> int:
    """What a running request that spent one re-issue has spent once it is queued again."""
    life = lifecycle(profile, interval=2)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    passes_until_offered(life, key)
    life.missed(key, life.issue(key) or 0)
    life.admit(key)
    again = life.retract(key, why)
    assert again is not None
    assert again.attempt == 1
    return life.spent(again)


@pytest.mark.parametrize(("profile", "spent"), [("seed", 1), ("recommended", 0), ("sglang-0.5.23", 0)])
def test_retraction_resets_the_budget_where_the_profile_says(profile: str, spent: int) -> None:
    assert spent_after(profile, "retracted") == spent


@pytest.mark.parametrize("why", ["preempted", "paused", "requeued"])
@pytest.mark.parametrize(("profile", "spent"), [("seed", 1), ("recommended", 0), ("sglang-0.5.23", 1)])
def test_upstream_renews_the_budget_of_a_retracted_request_alone(profile: str, spent: int, why: str) -> None:
    assert spent_after(profile, why) == spent


@pytest.mark.parametrize(
    ("profile", "again", "spent"),
    [
        ("seed", "requeued", 1),
        ("sglang-0.5.23", "requeued", 1),
        ("sglang-0.5.23", "retracted", 0),
        ("sglang-0.5.23", "", 0),
        ("recommended", "requeued", 0),
    ],
)
def test_an_ended_request_that_is_queued_again_spends_on_as_replay_expects(
    tmp_path: Path, profile: str, again: str, spent: int
) -> None:
    log = tmp_path / "log.jsonl"
    life = lifecycle(profile, log=EventLog(log))
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    passes_until_offered(life, key)
    life.missed(key, life.issue(key) or 0)
    life.abort(key)
    key = life.enqueue("r", 96, again=again)
    assert life.spent(key) == spent
    life.close()
    assert not [one for one in judge_file(SPEC, log).violations if one.rule == "attempts-bounded"]


def test_a_prefix_lost_at_admission_is_asked_for_once_budget_permits_40043() -> None:
    life = lifecycle(max_attempts=1)
    key = life.enqueue("r", 96)
    assert life.lose_match(key) is not None
    life.missed(key, life.operation(key) or 0)
    assert life.lose_match(key) is None
    assert (life.state(key), life.spent(key)) == ("exhausted", 1)


def test_the_seed_does_not_ask_at_admission() -> None:
    life = lifecycle("seed")
    key = life.enqueue("r", 96)
    assert life.lose_match(key) is None
    assert life.state(key) == "queued"


def test_a_hold_whose_base_shrank_is_asked_for_again_at_once() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    loaded(life, key)
    life.shrink(key)
    assert life.occupied_tokens == 0
    assert life.begin_pass() == [key]


def test_a_hold_of_no_pages_parks_like_none() -> None:
    life = lifecycle(host_tokens=96)
    first, second = life.enqueue("first", 96), behind_a_head(life)
    late = transferring(life, second)
    life.cut(second, 0)
    life.loaded(second, late)
    op = life.lose_match(second)
    transferring(life, first)
    assert life.hit(second, op or 0, 96, 96)
    assert life.state(second) == "parked"


def test_a_hold_of_a_part_does_not_park_for_the_rest() -> None:
    life = lifecycle(host_tokens=96)
    first, second = life.enqueue("first", 96), behind_a_head(life)
    life.loaded(second, transferring(life, second, stored=32, wanted=96))
    transferring(life, first, stored=64, wanted=64)
    op = passes_until_offered(life, second) and life.issue(second)
    assert life.hit(second, op or 0, 64, 64)
    assert life.state(second) == "missed"


@pytest.mark.parametrize("reset", ["flush", "detach"])
def test_flush_and_detach_start_every_waiting_attempt_over(reset: str) -> None:
    life = lifecycle()
    keys = [life.enqueue(f"r{i}", 96) for i in range(4)]
    life.missed(keys[0], asked(life, keys[0]))
    loaded(life, keys[1])
    late = transferring(life, keys[2])
    getattr(life, reset)()
    assert {life.state(key) for key in keys} == {"queued"}
    assert (life.orphans, life.pinned_tokens, life.occupied_tokens) == ([late], 0, 96)
    life.post(Completion(late, "done"))
    life.begin_pass()
    assert (life.orphans, life.occupied_tokens, life.check()) == ([], 0, [])


def test_nothing_is_asked_while_storage_is_detached() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    life.detach()
    assert life.issue(key) is None
    life.attach()
    assert life.issue(key) is not None


def test_retries_that_are_off_drop_a_marker_with_the_next_sweep_in_0_5_23() -> None:
    life = lifecycle("sglang-0.5.23", interval=0)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    assert life.state(key) == "missed"
    assert life.begin_pass() == []
    assert (life.state(key), life.spent(key)) == ("queued", 0)


def test_retries_that_are_off_still_ask_for_a_known_hit_in_0_5_23() -> None:
    life = lifecycle("sglang-0.5.23", interval=0)
    key = behind_a_head(life)
    asked(life, key)
    life.lose_anchor(key)
    assert life.begin_pass() == [key]
    assert life.issue(key) is not None


@pytest.mark.parametrize(
    ("profile", "then"), [("seed", "queued"), ("sglang-0.5.23", "missed"), ("recommended", "missed")]
)
def test_a_cut_question_is_armed_but_in_0_5_19_whose_scan_pops_its_marker(profile: str, then: str) -> None:
    life = lifecycle(profile)
    key = behind_a_head(life)
    asked(life, key)
    life.cut(key)
    assert life.state(key) == then


@pytest.mark.parametrize(
    ("profile", "then"), [("seed", "queued"), ("sglang-0.5.23", "missed"), ("recommended", "missed")]
)
def test_a_hold_without_its_base_is_asked_for_again_but_in_0_5_19_39283(profile: str, then: str) -> None:
    life = lifecycle(profile)
    key = behind_a_head(life)
    loaded(life, key)
    life.shrink(key)
    assert (life.state(key), life.occupied_tokens) == (then, 0)
