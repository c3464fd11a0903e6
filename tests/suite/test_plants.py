"""Every planted fault is found within the default budget, and nothing is found without one."""

from pathlib import Path

import pytest

from hicache_fsm.spec import load_spec
from hicache_fsm.suite.campaign import one_run
from hicache_fsm.suite.plants import PLANTS, find
from hicache_fsm.suite.play import Problem
from hicache_fsm.suite.targets.runtime import RuntimeTarget

SPEC = load_spec()


@pytest.mark.parametrize("name", PLANTS)
def test_the_planted_fault_is_found(name: str) -> None:
    found = find(PLANTS[name].target(SPEC))
    assert found is not None, f"{name}: the suite does not see it"
    assert isinstance(found.problem, Problem)


def test_there_are_at_least_twenty_faults_of_the_kinds_that_upstream_had() -> None:
    assert len(PLANTS) >= 20
    kinds = " ".join(plant.about for plant in PLANTS.values())
    for kind in (
        "release is gone",
        "guard is gone",
        "key cut down to the request id",
        "swapped order",
        "lost reset",
    ):
        assert kind in kinds


def test_nothing_is_found_in_the_shipped_runtime_within_the_same_budget() -> None:
    assert find(RuntimeTarget(spec=SPEC)) is None


def test_a_run_is_the_same_each_time() -> None:
    target = RuntimeTarget(spec=SPEC)
    first, _ = one_run(target, 0, 3, exact=True)
    again, _ = one_run(target, 0, 3, exact=True)
    assert first.events == again.events
    assert first.seen == again.seen


def test_the_guide_has_every_fault_with_what_found_it() -> None:
    guide = Path(__file__).parents[2].joinpath("docs", "suite.md").read_text(encoding="utf-8")
    rows = [
        line.split(" | ")
        for line in guide.partition("<!-- plants -->")[2].splitlines()
        if line.startswith("|")
    ]
    told = {row[0].removeprefix("| "): row[2] for row in rows[2:]}
    assert set(told) == set(PLANTS)
    assert "nothing" not in told.values()
