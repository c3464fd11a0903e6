"""What the plugin compares between ranks, and the pacing that several ranks share; without SGLang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hicache_fsm.ranks import RankDigest
from hicache_fsm.sglang.guard import Guard
from hicache_fsm.sglang.lockstep import Lockstep
from hicache_fsm.sglang.modes import Mode, Options
from hicache_fsm.sglang.ranked import main

EVENTS: tuple[tuple[int, str, str, dict[str, Any]], ...] = (
    (1, "prefetch", "enqueue", {"rid": "r1", "attempt": 0, "tokens": 96}),
    (1, "prefetch", "issue", {"rid": "r1", "attempt": 0, "facts": {"asks": True}, "op": 1, "tokens": 95}),
    (2, "node", "evict", {"tokens": 7}),
    (
        2,
        "pin",
        "pin",
        {"rid": "r1", "attempt": 0, "why": "locked", "tokens": 48, "facts": {"anchored": True}},
    ),
    (3, "belief", "deny", {"pool": "kv", "pages": 95}),
    (3, "belief", "write_failed", {"pool": "kv", "pages": 3}),
    (3, "prefetch", "abort", {"rid": "r1", "attempt": 0, "why": "client"}),
)


def fed(*events: tuple[int, str, str, dict[str, Any]]) -> RankDigest:
    """The digest of a rank that saw these events."""
    lockstep, digest = Lockstep(16, 60.0), RankDigest()
    lockstep._digest = digest
    for pass_, machine, event, members in events:
        lockstep.transition(pass_, machine, event, members.get("rid"), members)
    digest.close(99)
    return digest


def test_nothing_is_compared_unless_it_is_asked_for() -> None:
    assert Lockstep.asked(Options()) is None
    assert Lockstep.asked(Options(ranks=16)) is not None


def test_nodes_and_failed_writes_are_each_ranks_own() -> None:
    own = [one for one in EVENTS if one[2] not in ("evict", "write_failed")]
    assert fed(*EVENTS).digest == fed(*own).digest


@pytest.mark.parametrize("left_out", ["enqueue", "issue", "pin", "deny", "abort"])
def test_every_other_event_is_alike(left_out: str) -> None:
    assert fed(*EVENTS).digest != fed(*[one for one in EVENTS if one[2] != left_out]).digest


def test_a_fault_in_the_digest_ends_the_comparison_and_reaches_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    withdrawn: list[bool] = []
    lockstep = Lockstep(16, 60.0)
    lockstep._digest = RankDigest()
    comparison: Any = SimpleNamespace(withdraw=lambda: withdrawn.append(True))
    lockstep._comparison = comparison
    for pass_ in (1, 2, 3):
        lockstep.transition(pass_, "prefetch", "issue", "r1", {"rid": "r1", "attempt": 0, "tokens": "many"})
    assert withdrawn == [True]
    assert "compares no ranks after a fault" in caplog.text


def test_a_belief_is_told_without_a_request() -> None:
    told = [str(one) for passed in fed(EVENTS[4]).since(0) for one in _decisions(passed.decisions)]
    assert told == ["belief deny: pool:kv, pages:95"]


def _decisions(plain: Any) -> list[Any]:
    from hicache_fsm.ranks import Decision

    return [Decision(*one) for one in plain]


def test_an_event_before_the_engine_stands_is_let_go() -> None:
    Lockstep(16, 60.0).transition(0, "prefetch", "enqueue", "r1", {"rid": "r1"})


def test_a_rank_whose_plugin_is_off_withdraws_and_still_comes() -> None:
    came: list[object] = []
    comparison = SimpleNamespace(
        withdraw=lambda: came.append("withdraws"), passed=came.append, compared=0, since=0
    )
    lockstep = Lockstep(16, 60.0)
    lockstep._comparison = comparison  # type: ignore[assignment]
    lockstep._guard = Guard()
    lockstep.pass_begins()
    lockstep._guard.failed = True
    lockstep.pass_begins()
    assert came == [1, "withdraws", 2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["0.5.23", "--ranks", "1"], "--ranks 1: two at least"),
        (["0.5.23", "--compare", "-3"], "HICACHE_FSM_RANKS=-3: passes between two comparisons"),
        (["0.4.0"], "unknown SGLang version 0.4.0"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line_and_exit_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"sglang ranks: {told}")


@pytest.mark.parametrize("given", ["often", "-1", "1.5"])
def test_a_distance_that_makes_no_sense_is_one_line(given: str) -> None:
    with pytest.raises(
        ValueError, match=f"^HICACHE_FSM_RANKS={given}: passes between two comparisons"
    ) as error:
        Options.of({"HICACHE_FSM_RANKS": given})
    assert "\n" not in str(error.value)


def test_asking_for_it_switches_the_plugin_on() -> None:
    assert Options.of({"HICACHE_FSM_RANKS": "16"}).mode is Mode.OBSERVE
    assert Options.of({"HICACHE_FSM_RANKS": "0"}).mode is Mode.OFF
    assert Options.of({"HICACHE_FSM_RANKS": "16", "HICACHE_FSM_MODE": "off"}).mode is Mode.OFF


# ---- the pacing


RESTING, AGREEING, MOVING = 2, 1, 0


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([[RESTING, 4], [RESTING, 4]], True),
        ([[AGREEING, 5], [RESTING, 4]], True),
        ([[AGREEING, 5], [RESTING, 5]], False),
        ([[AGREEING, 5], [AGREEING, 5]], False),
        ([[MOVING, 4], [RESTING, 4]], False),
        ([[AGREEING, 5], [AGREEING, 5], [RESTING, 4], [RESTING, 5]], True),
    ],
)
def test_a_thread_waits_for_good_only_where_another_rank_rests_before_that_collective(
    ranks: list[list[int]], expected: bool
) -> None:
    pytest.importorskip("torch", reason="the harness needs the extra torch")
    from hicache_fsm.sglang.harness.ranked_pacing import settled

    assert settled(ranks) is expected
