"""The model, TLC and the runtime agree; a guard changed in any one of them shows, with a path."""

from collections.abc import Mapping

import pytest

from hicache_fsm.conform import ConformError, Report, Sides, case, compare, runtime_graph, sides
from hicache_fsm.conform.drive_admission import AdmissionDriver
from hicache_fsm.conform.plan import PLAN, configurations
from hicache_fsm.explore import explore
from hicache_fsm.spec import Spec, apply_witness, load_spec
from hicache_fsm.tlc import TlcError, Tools, locate, tla_dir

SMALL = ("node.two", "node.three", "belief.short")


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec()


@pytest.fixture(scope="module")
def tools() -> Tools:
    try:
        return locate()
    except TlcError as error:
        pytest.skip(str(error))


def _compared(spec: Spec, name: str, tools: Tools | None = None) -> Report:
    chosen = case(spec, name)
    return compare(chosen, sides(chosen, tools, runtime=True))


@pytest.mark.parametrize("name", SMALL)
def test_the_runtime_takes_the_steps_of_the_model(spec: Spec, name: str) -> None:
    report = _compared(spec, name)
    assert report.equal, str(report.comparisons[0].difference)


@pytest.mark.slow
def test_the_runtime_takes_the_steps_of_the_model_for_a_whole_request(spec: Spec) -> None:
    report = _compared(spec, "admission.single")
    assert report.equal, str(report.comparisons[0].difference)


@pytest.mark.tlc
@pytest.mark.parametrize("name", [*SMALL, "ranks.two"])
def test_all_sides_reach_the_same_states_by_the_same_steps(spec: Spec, tools: Tools, name: str) -> None:
    report = _compared(spec, name, tools)
    assert report.equal, [str(each.difference) for each in report.comparisons]
    assert {side.name for each in report.comparisons for side in each.sides} >= {"model", "tlc"}


def test_the_graph_of_the_model_has_what_explore_counts(spec: Spec) -> None:
    chosen = case(spec, "node.three")
    side = compare(chosen, sides(chosen, None, runtime=True)).comparisons[0].sides[0]
    counted = explore(chosen.system())
    assert (side.distinct, side.depth) == (counted.distinct, counted.depth)


def test_a_state_has_the_same_future_by_whichever_path(spec: Spec) -> None:
    chosen = case(spec, "belief.short")
    names = tuple(variable.name for variable in chosen.system().layout.variables)
    assert runtime_graph(chosen.driver(names), twice=True).distinct == 432


WITNESSES: Mapping[str, str] = {"node.two": "load-exclusive", "belief.short": "belief-evidence"}
"""A change of the spec by which each small system differs: the witness of an invariant."""


@pytest.mark.parametrize("name", WITNESSES)
@pytest.mark.parametrize("side", ["model", "runtime"])
def test_a_row_changed_on_one_side_is_a_difference_with_a_path(spec: Spec, name: str, side: str) -> None:
    chosen = case(spec, name)
    wrong = apply_witness(chosen.spec, spec.invariants[WITNESSES[name]].witness)
    honest = sides(chosen, None, runtime=True)
    planted = {
        "model": Sides(chosen.system(wrong), None, honest.runtime),
        "runtime": Sides(honest.model, None, lambda names: chosen.driver(names, wrong)),
    }[side]
    report = compare(chosen, planted)
    assert not report.equal
    found = report.comparisons[0].difference
    assert found is not None
    assert all(path.steps for path in found.paths)
    assert any(found.only)


@pytest.mark.tlc
def test_a_guard_changed_in_tla_is_a_difference_with_a_path(spec: Spec, tools: Tools) -> None:
    text = (tla_dir() / "Node.tla").read_text()
    guard = "IF claims[n] = {} \\/ ClaimsClaimed"
    assert guard in text
    wrong = text.replace(guard, 'IF claims[n] = {} \\/ n # "n0"')
    chosen = case(spec, "node.two")
    report = compare(chosen, Sides(chosen.system(), (tools, chosen.job({"Node.tla": wrong})), None))
    found = report.comparisons[0].difference
    assert not report.equal
    assert found is not None
    assert found.sides == ("model", "tlc")
    assert found.only[1][0].label == "load"
    assert found.paths[0].steps


def test_a_guard_changed_in_the_runtime_alone_shows_in_a_request_too(spec: Spec) -> None:
    """Before the whole graph is built: the first step that only one side has."""
    chosen = case(spec, "admission.single")
    wrong = apply_witness(chosen.spec, spec.invariants["no-residue"].witness)
    names = ("r0.state", "r0.hold", "occupied")
    honest, planted = (_after_abort(chosen.driver(names, each)) for each in (chosen.spec, wrong))
    assert honest == ("aborted", 0, 0)
    assert planted != honest


def _after_abort(driver: object) -> tuple[object, ...]:
    assert isinstance(driver, AdmissionDriver)
    for choice in (("wack",), ("wack",), ("enqueue", 0, ""), ("hit", 0), ("done", 0), ("abort", 0)):
        driver.take(choice)
    return driver.observe()


def test_the_plan_names_configurations_that_exist() -> None:
    assert {one.configuration for one in PLAN} <= set(configurations())


def test_an_unknown_configuration_or_profile_is_refused(spec: Spec) -> None:
    with pytest.raises(ConformError, match='unknown configuration "nope"'):
        case(spec, "nope")
    with pytest.raises(ConformError, match='unknown profile "nope"'):
        case(spec, "node.two", "nope")


def test_ranks_have_no_runtime_of_their_own(spec: Spec) -> None:
    with pytest.raises(ConformError, match="the runtime has no ranks"):
        case(spec, "ranks.two").driver(())
