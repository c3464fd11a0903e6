"""The Promela export, and SPIN's count where SPIN is installed."""

import re
import shutil

import pytest

from hicache_fsm.export import SpinError, promela, spin_count
from hicache_fsm.model import System, system
from hicache_fsm.model.expr import number, variable
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action
from hicache_fsm.spec import load_spec

SPEC = load_spec()
needs_spin = pytest.mark.skipif(
    not (shutil.which("spin") and shutil.which("cc")), reason="SPIN or a C compiler is missing"
)


@needs_spin
@pytest.mark.parametrize(
    ("name", "distinct"), [("node.three", 305), ("ranks.two", 27), ("admission-disabled.interval", 1907)]
)
def test_spin_stores_as_many_states(name: str, distinct: int) -> None:
    assert spin_count(system(SPEC, "recommended", name), distinct).distinct == distinct


@needs_spin
@pytest.mark.slow
def test_spin_stores_as_many_states_of_two_requests() -> None:
    assert spin_count(system(SPEC, "recommended", "admission.pair"), 19_794).distinct == 19_794


@needs_spin
def test_a_stack_that_is_too_small_is_no_count() -> None:
    deep = line(3_000)
    with pytest.raises(SpinError, match="SPIN did not finish"):
        spin_count(deep, 10)
    assert spin_count(deep, 3_000).distinct == 3_001


def line(length: int) -> System:
    """Two digits of a counter that climbs to `length`: a path that is all of the graph."""
    low, high = variable("low"), variable("high")
    carry = Action(
        "carry", "carry", -1, low.eq(59) & high.lt(length // 60), {"low": number(0), "high": high + 1}
    )
    climb = Action("climb", "climb", -1, low.lt(59) & high.lt(length // 60), {"low": low + 1})
    layout = Layout([Variable("low", 59, "ones"), Variable("high", length // 60, "sixties")])
    return System("line", "line.test", "none", layout, {"low": 0, "high": 0}, (climb, carry))


@needs_spin
def test_a_run_that_takes_too_long_is_no_count() -> None:
    with pytest.raises(SpinError, match=r"more than 0\.01 seconds"):
        spin_count(system(SPEC, "recommended", "node.two"), limit_s=0.01)


def test_without_spin_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SpinError, match="spin and cc not found: apt-get install spin gcc"):
        spin_count(system(SPEC, "recommended", "node.two"))


def test_every_variable_and_action_is_in_the_text() -> None:
    built = system(SPEC, "recommended", "node.two")
    text = promela(built)
    assert text.count(":: d_step") == len(built.actions)
    declared = re.findall(r"^(?:byte|short) \w+ = (-?\d+);", text, re.MULTILINE)
    assert [int(value) for value in declared] == [built.initial[v.name] for v in built.layout.variables]
