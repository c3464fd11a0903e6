"""Real processes with gloo: who decides alike is equal, who does not is named, with pass and decision."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.ranks import RankDigest, compare_logs
from hicache_fsm.ranks.logs import decision_of
from hicache_fsm.runtime import read_log

pytest.importorskip("torch", reason="ranks need the extra torch")

WORLD = Path(__file__).parent / "ranks_world.py"
RANK_SCENARIOS = ("equal", "idle", "slowed", "late", "late agreed", "short", "short agreed", "clock")
PASSES, EVERY = 160, 16

Told = Mapping[str, Mapping[str, Any]]


def world(folder: Path, ranks: int, *scenarios: str) -> list[Told]:
    """Run the scenarios on so many processes. Returns what each rank found."""
    command = [sys.executable, str(WORLD)]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(folder), *scenarios],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0] * ranks, errors
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def two(folder: Path) -> list[Told]:
    return world(folder, 2, *RANK_SCENARIOS, "passes", "withdraws", "forgotten", "hangs", "dies")


def same(told: list[Told], scenario: str) -> Mapping[str, Any]:
    """What all ranks found, which must be the same difference."""
    found = [rank[scenario] for rank in told]
    assert [one["difference"] for one in found] == [found[0]["difference"]] * len(found)
    return found[0]


@pytest.mark.parametrize("scenario", ["equal", "slowed", "late agreed", "short agreed"])
def test_ranks_that_decide_alike_are_equal(two: list[Told], scenario: str) -> None:
    found = same(two, scenario)
    assert found["differences"] == 0
    assert found["compared"] == PASSES // EVERY
    assert found["decided"] > 1000
    assert two[1][scenario]["digest"] == found["digest"]


def test_ranks_compare_by_pass_count_even_if_they_decide_nothing(two: list[Told]) -> None:
    """#26921, #30760: a collective that depends on what a rank holds hangs the others."""
    assert [rank["idle"]["compared"] for rank in two] == [PASSES // EVERY] * 2
    assert [rank["idle"]["decided"] for rank in two] == [0, 0]


def test_a_rank_whose_storage_answers_late_is_found_where_it_first_decides_otherwise(two: list[Told]) -> None:
    found = same(two, "late")
    assert found["difference"]["pass"] < found["seen_in_pass"] <= found["difference"]["pass"] + EVERY
    first, second = found["difference"]["ranks"].values()
    assert first != second
    assert "ranks differ first in pass" in found["told"]


def test_a_rank_whose_storage_holds_less_is_found_with_both_answers(two: list[Told]) -> None:
    found = same(two, "short")
    first, second = found["difference"]["ranks"].values()
    assert (first["event"], first["rid"], first["op"]) == (second["event"], second["rid"], second["op"])
    assert first["event"] == "hit"
    assert first["op"] % 11 == 0
    assert first["tokens"] == second["tokens"] + 32


def test_a_rank_that_paces_by_its_clock_is_found_at_its_re_issue(two: list[Told]) -> None:
    found = same(two, "clock")
    first, second = found["difference"]["ranks"].values()
    assert first is None or (first["event"], first["rid"]) != (second["event"], second["rid"])
    assert second["event"] in ("pin", "sweep")


def test_a_difference_that_was_told_does_not_hide_the_next(two: list[Told]) -> None:
    assert same(two, "late")["differences"] > 1


@pytest.mark.parametrize("scenario", ["late", "short", "clock"])
def test_the_logs_of_the_ranks_name_the_same_decision(two: list[Told], folder: Path, scenario: str) -> None:
    logs = [folder / f"{scenario}.rank{rank}.jsonl" for rank in (1, 0)]
    found = compare_logs(logs).difference
    assert found is not None
    live, offline = same(two, scenario)["difference"], found.as_json()
    assert {**offline, "places": {}} == live
    for rank, place in found.places.items():
        path, line = place.rsplit(":", 1)
        text = Path(path).read_text().splitlines()[int(line) - 1]
        decision = found.decisions[rank]
        assert decision is not None
        assert f'"event":"{decision.event}"' in text
        assert f'"rid":"{decision.rid}"' in text


@pytest.mark.parametrize("scenario", ["equal", "slowed", "late agreed"])
def test_the_logs_of_equal_ranks_are_equal(two: list[Told], folder: Path, scenario: str) -> None:
    compared = compare_logs([folder / f"{scenario}.rank{rank}.jsonl" for rank in (0, 1)])
    assert compared.difference is None
    assert compared.decisions == two[0][scenario]["decided"]
    assert compared.cut == compared.missing == ()


def test_a_lifecycle_and_its_log_have_the_same_digest(two: list[Told], folder: Path) -> None:
    digest = RankDigest()
    for line in read_log(folder / "equal.rank0.jsonl"):
        decision = decision_of(line)
        if decision is not None:
            digest.decide(line.pass_, decision)
    digest.close(PASSES + 1)
    assert digest.digest == two[0]["equal"]["digest"]


def test_ranks_that_compare_at_different_passes_are_told_so(two: list[Told]) -> None:
    for rank in two:
        assert "rank 0 at pass 16, rank 1 at pass 32" in rank["passes"]["error"]


def test_a_rank_that_has_nothing_to_compare_any_more_lets_no_other_wait(two: list[Told]) -> None:
    for rank in two:
        assert rank["withdraws"]["error"] == "rank 1 compares no more from pass 16 on"
        assert rank["withdraws"]["again"] is None


def test_a_difference_in_what_is_no_longer_kept_is_still_told(two: list[Told]) -> None:
    for rank in two:
        assert rank["forgotten"]["passes"].startswith("ranks differ in pass 32 or before")
        assert rank["forgotten"]["decisions"].startswith("ranks differ in pass 1 or before")


def test_ranks_whose_digests_keep_different_numbers_of_passes_are_told_so(two: list[Told]) -> None:
    for rank in two:
        assert "keep different numbers of passes" in rank["forgotten"]["unlike"]


def test_a_rank_that_hangs_is_an_error_after_the_time_of_the_group(two: list[Told]) -> None:
    told = two[0]["hangs"]
    assert (
        "no comparison at pass 16, rank 1 (last at pass 0) has died, hangs or makes no passes"
        in told["error"]
    )
    assert "\n" not in told["error"]
    assert 1 < told["seconds"] < 30
    assert told["broken"]
    assert told["again"] is None


def test_a_rank_that_died_is_an_error_at_once(two: list[Told]) -> None:
    told = two[0]["dies"]
    assert "no comparison at pass 16, another rank has died" in told["error"]
    assert "\n" not in told["error"]
    assert told["seconds"] < 20


@pytest.mark.slow
def test_of_four_ranks_the_odd_one_is_named(tmp_path: Path) -> None:
    told = world(tmp_path, 4, "equal", "late agreed", "short")
    assert same(told, "equal")["differences"] == same(told, "late agreed")["differences"] == 0
    found = same(told, "short")
    assert found["difference"]["odd"] == [2]
    assert "not with the majority: rank 2" in found["told"]
    offline = compare_logs([tmp_path / f"short.rank{rank}.jsonl" for rank in range(4)]).difference
    assert offline is not None
    assert offline.odd == (2,)
