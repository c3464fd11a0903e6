"""Random lives of the shipped runtime, held to a reference model that shares no code with it."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

from hicache_fsm.spec import load_spec
from hicache_fsm.suite import reference, ways
from hicache_fsm.suite.plants import PLANTS
from hicache_fsm.suite.runner import run
from hicache_fsm.suite.scenario import load
from hicache_fsm.suite.stateful import Floor, run_stateful
from hicache_fsm.suite.targets.runtime import RuntimeTarget

SPEC = load_spec()
ABORTS = ("client", "queue_limit", "priority", "timeout", "bootstrap", "session")
RETRACTIONS = ("retracted", "preempted", "paused", "requeued")
FLOOR = Floor(
    states={
        "queued": 4000,
        "probing": 1500,
        "missed": 1200,
        "pending": 400,
        "retrying": 200,
        "parked": 80,
        "transferring": 500,
        "loaded": 400,
        "exhausted": 400,
        "running": 1500,
        "aborted": 1500,
        "finished": 1500,
    },
    exits={
        "admit": 200,
        "finish": 100,
        "pause": 40,
        "flush": 20,
        "detach": 25,
        "cut": 50,
        "expire": 40,
        "abandon": 50,
        **{f"abort {why}": 30 for why in ABORTS},
        **{f"retract {why}": 10 for why in RETRACTIONS},
    },
    changes=39,
)
"""Under `recommended` nothing arms that was not asked, so two of the table's 48 changes cannot come about."""


def test_random_lives_do_what_the_reference_foretells_and_reach_every_state_and_exit() -> None:
    coverage = run_stateful(RuntimeTarget(spec=SPEC), exact=True, floor=FLOOR)
    assert coverage.answers["inexpressible"] == 0


def test_too_little_reached_is_a_failure_that_names_what_is_missing() -> None:
    floor = Floor(states={"parked": 10_000}, exits={"abort client": 10_000}, changes=48)
    with pytest.raises(
        AssertionError, match=r"parked \d+ times, not 10000; abort client .*; missing: queued"
    ):
        run_stateful(RuntimeTarget(spec=SPEC), exact=True, examples=3, steps=10, floor=floor)


def test_a_failing_run_becomes_a_scenario_file_that_fails_again_and_only_with_the_fault(
    tmp_path: Path,
) -> None:
    planted = PLANTS["abort keeps its marker"].target(SPEC)
    with pytest.raises(AssertionError, match="hicache-fsm scenarios"):
        run_stateful(planted, exact=True, out=tmp_path)
    (path,) = tmp_path.glob("*.toml")
    scenario = load(path)
    assert len(scenario.events) <= 3
    assert run(planted, scenario).verdict.what == "marker-owned"
    assert run(RuntimeTarget(spec=SPEC), scenario).verdict.outcome == "pass"


def test_what_only_the_reference_foretells_is_expected_by_the_scenario(tmp_path: Path) -> None:
    planted = PLANTS["budget kept over a retraction"].target(SPEC)
    with pytest.raises(AssertionError, match="reference"):
        run_stateful(planted, exact=True, out=tmp_path, examples=400)
    (path,) = tmp_path.glob("*.toml")
    assert run(planted, load(path)).verdict.what == "expect"
    assert run(RuntimeTarget(spec=SPEC), load(path)).verdict.outcome == "pass"


@pytest.mark.parametrize("module", [reference, ways])
def test_the_reference_shares_no_code_with_what_it_judges(module: ModuleType) -> None:
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    imported = {each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    own = {name for name in imported if name.startswith("hicache_fsm")}
    assert own <= {"hicache_fsm.suite.protocol", "hicache_fsm.suite.ways"}
