"""Several ranks of the real SGLang: what they decide alike, what parts them, and what the plugin says then."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.ranks import compare_logs
from hicache_fsm.sglang.ranked import Case, play_cases
from hicache_fsm.sglang.record import HarnessMissingError, require

pytestmark = pytest.mark.sglang
Ranks = list[dict[str, Any]]
Play = Callable[[str, str], Ranks]
SCRIPT = (str(Path(__file__).with_name("ranked_script.py")),)
COMPARED = {"HICACHE_FSM_MODE": "observe", "HICACHE_FSM_RANKS": "4"}
CLOSELY = COMPARED | {"HICACHE_FSM_RANKS": "1", "HICACHE_FSM_RANKS_TIMEOUT": "20"}
STRICT = CLOSELY | {"HICACHE_FSM_MODE": "strict"}
SMALL = ("--requests", "16", "--seed", "1")
CROWDED = ("--requests", "40", "--seed", "2", "--pool-tokens", "640")
"""Re-issues come due behind the head of the queue."""
IN_SECONDS = ("--storage", "file", "--real-time")
CASES = {
    "0.5.23": {
        "faults": Case(
            (*SMALL, "--faults", "0.25", "--stage-aborts", "0.3"), plugin=COMPARED, log="log.jsonl"
        ),
        "a slow rank": Case(SMALL, plugin=COMPARED, by_rank={"1": ("--faults", "0.5")}, plants={"1": "slow"}),
        "a late retry": Case(CROWDED, plugin=STRICT, plants={"1": "late_retry"}),
        "a rank that dies": Case(SMALL, plugin=CLOSELY, plants={"1": "dies"}),
        "a clear that fails on one rank": Case(
            ("--storage", "file"),
            plugin=CLOSELY,
            drive="clear_under_load",
            plants={"0": "notes_clears", "1": "clear_raises"},
            log="log.jsonl",
        ),
    },
}
"""What is played in one process a version, which imports SGLang once."""
CUT = Case(
    (*IN_SECONDS, "--policy", "best_effort"),
    plugin=CLOSELY,
    drive="ask_again",
    plants={"0": "cuts_late", "1": "asks_late"},
)
BIG = {
    "0.5.23": {
        "a wall clock": Case(CROWDED, plugin=STRICT, plants={"1": "clock_paced"}),
        "a cut between two questions": CUT,
        "an attach that fails on one rank": Case(
            IN_SECONDS,
            plugin=CLOSELY | {"HICACHE_FSM_RANKS": "256", "HICACHE_FSM_RANKS_TIMEOUT": "4"},
            drive="attach_again",
            plants={"0": "tells_where", "1": "cannot_attach"},
            quiet=False,
            limit_s=60,
        ),
        "an attach": Case(
            IN_SECONDS, drive="attach_again", plants={"0": "tells_where", "1": "tells_where"}, quiet=False
        ),
        "many": Case(("--requests", "200", "--faults", "0.25", "--stage-aborts", "0.3"), plugin=COMPARED),
        "four": Case((*SMALL, "--faults", "0.25"), 4, COMPARED),
        "four, one late": Case(CROWDED, 4, STRICT, plants={"2": "late_retry"}),
        "cache mode": Case((*SMALL, "--mode", "cache", "--faults", "0.25"), plugin=COMPARED),
        "in seconds": Case((*SMALL, *IN_SECONDS), plugin=COMPARED, plants={"1": "slow"}),
    },
    "0.5.19": {
        "faults": Case((*SMALL, "--faults", "0.25", "--stage-aborts", "0.3"), plugin=COMPARED),
        "a cut between two questions": CUT,
    },
}


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """``play(version, name)``: what each rank of a case saw; the cases of a version are played together."""

    @functools.cache
    def played(version: str, big: bool) -> tuple[Path, dict[str, Ranks]]:
        try:
            require(version)
        except HarnessMissingError as missing:
            pytest.skip(str(missing))
        folder = tmp_path_factory.mktemp("ranks")
        cases = (BIG if big else CASES)[version]
        return folder, dict(
            zip(cases, play_cases(version, list(cases.values()), folder, script=SCRIPT), strict=True)
        )

    def one(version: str, name: str, *, big: bool = False) -> Ranks:
        folder, told = played(version, big)
        place = list((BIG if big else CASES)[version]).index(name)
        return [rank | {"folder": folder / str(place)} for rank in told[name]]

    return one


def warned(rank: dict[str, Any]) -> list[str]:
    """The lines that name a difference, with those below each."""
    lines: Sequence[str] = rank["printed"]
    begins = [at for at, line in enumerate(lines) if line.startswith("WARNING hicache-fsm lockstep")]
    return [line for at in begins for line in lines[at : at + 6]]


@pytest.mark.parametrize("name", ["faults", "a slow rank"])
def test_ranks_decide_alike_whatever_their_storage_answers_and_however_slow_one_is(
    play: Play, name: str
) -> None:
    told = play("0.5.23", name)
    assert [rank["ended"] for rank in told] == ["drained", "drained"]
    assert all(rank["lockstep"][0] > 20 and rank["lockstep"][1] == 0 for rank in told)
    assert told[0]["outputs"] == told[1]["outputs"]


def test_the_ranks_storages_fail_in_ways_of_their_own(play: Play) -> None:
    first, second = play("0.5.23", "faults")
    assert first["faults"] != second["faults"]
    assert min(sum(rank["faults"].values()) for rank in (first, second)) >= 5


def test_the_logs_of_the_ranks_say_the_same(play: Play) -> None:
    folder = play("0.5.23", "faults")[0]["folder"]
    found = compare_logs([folder / "log.rank0.jsonl", folder / "log.rank1.jsonl"])
    assert found.difference is None
    assert found.decisions > 100


def test_a_retry_that_one_rank_issues_a_pass_late_stops_both_in_strict_mode(play: Play) -> None:
    """#36227: pacing counts passes so that ranks agree."""
    told = play("0.5.23", "a late retry")
    assert len({rank["ended"] for rank in told}) == 1
    assert told[0]["ended"].startswith("strict: lockstep: pass ")
    assert "\n  rank 0: prefetch sweep " in told[0]["ended"]
    assert "\n  rank 1: nothing more in this pass" in told[0]["ended"]


def test_a_rank_that_dies_is_one_line_on_the_others(play: Play) -> None:
    survivor, dead = play("0.5.23", "a rank that dies")
    assert dead["ended"] is None
    [line] = [line for line in survivor["printed"] if line.startswith("ERROR hicache-fsm")]
    assert "rank 0 of 2: no comparison at pass 40, rank 1 (last at pass 39) has died" in line


def test_a_clear_that_fails_on_one_rank_parts_the_ranks_writes_for_ever(play: Play) -> None:
    first, second = play("0.5.23", "a clear that fails on one rank")
    assert [rank["noted"]["clears"][0][0] for rank in (first, second)] == [True, False]
    assert second["noted"]["clears"][0][2] > first["noted"]["clears"][0][2] == 0
    assert first["driven"] == "never at rest"
    lines = warned(first)
    assert any("rank 0: belief write: pool:kv" in line for line in lines)
    assert any("rank 1: nothing more in this pass" in line for line in lines)


def test_the_logs_name_the_same_first_difference(play: Play) -> None:
    rank = play("0.5.23", "a clear that fails on one rank")[0]
    folder = rank["folder"]
    found = compare_logs([folder / "log.rank0.jsonl", folder / "log.rank1.jsonl"]).difference
    assert found is not None
    assert f"ranks differ first in pass {found.pass_}, decision {found.index + 1}" in warned(rank)[0]


# ---- longer


@pytest.mark.soak
def test_a_wall_clock_on_one_rank_is_named(play: Callable[..., Ranks]) -> None:
    told = play("0.5.23", "a wall clock", big=True)
    assert told[0]["ended"] == told[1]["ended"]
    assert "prefetch sweep" in told[0]["ended"]


@pytest.mark.soak
def test_a_cut_that_one_ranks_question_outruns_parts_their_beliefs(play: Callable[..., Ranks]) -> None:
    """0.5.19 lowers beliefs by what this rank's I/O thread happened to have looked up."""
    first, second = play("0.5.19", "a cut between two questions", big=True)
    assert any("rank 0: belief deny: pool:kv, pages:95" in line for line in warned(first))
    assert any("rank 0: belief write: pool:kv, pages:96" in line for line in warned(first))
    assert warned(first)[:5] == warned(second)[:5]


@pytest.mark.soak
def test_that_cut_parts_no_beliefs_where_a_skipped_question_is_no_verdict(play: Callable[..., Ranks]) -> None:
    told = play("0.5.23", "a cut between two questions", big=True)
    assert [rank["lockstep"][1] for rank in told] == [0, 0]


@pytest.mark.soak
def test_an_attach_that_fails_on_one_rank_stops_all(play: Callable[..., Ranks]) -> None:
    first, second = play("0.5.23", "an attach that fails on one rank", big=True)
    assert first["ended"] is second["ended"] is None
    assert any("in create_custom_parallel_group" in line for line in first["printed"])
    assert not any(line.startswith("attached") for line in first["printed"])
    assert any(line.startswith("attached: (False") for line in second["printed"])
    assert any("in _sync_hicache_ready_counts" in line for line in second["printed"])
    assert any(
        line.startswith("ERROR hicache-fsm: no pass for 4 s: rank 1 in pass ")
        and "nothing from rank 0" in line
        for line in second["printed"]
    )


@pytest.mark.soak
def test_an_attach_that_all_ranks_can_make_is_made(play: Callable[..., Ranks]) -> None:
    for rank in play("0.5.23", "an attach", big=True):
        assert any(line.startswith("attached: (True") for line in rank["printed"])


@pytest.mark.soak
def test_of_four_ranks_the_odd_one_is_named(play: Callable[..., Ranks]) -> None:
    told = play("0.5.23", "four, one late", big=True)
    assert len({rank["ended"] for rank in told}) == 1
    assert "not with the majority: rank 2" in told[0]["ended"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.5.23", "many"),
        ("0.5.23", "four"),
        ("0.5.23", "cache mode"),
        ("0.5.23", "in seconds"),
        ("0.5.19", "faults"),
    ],
)
def test_longer_runs_find_no_difference(play: Callable[..., Ranks], version: str, name: str) -> None:
    for rank in play(version, name, big=True):
        assert rank["ended"] == "drained"
        assert rank["lockstep"][1] == 0
