"""Which steps of a counterexample matter: those that what fails depends on, and no others."""

from dataclasses import replace

import pytest

from hicache_fsm.explore import Verdict, explain, explore
from hicache_fsm.explore.slice import matters, support
from hicache_fsm.explore.trace import step_of
from hicache_fsm.model import System, system
from hicache_fsm.model.expr import evaluate, number, variable, where
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action, Goal, StateCheck, StepCheck
from hicache_fsm.spec import apply_witness, load_spec

SPEC = load_spec()


def switches(**parts: object) -> System:
    """Three switches; the second can be thrown once the first is, the third whenever one likes."""
    first, second, third = (variable(name) for name in ("first", "second", "third"))
    actions = (
        Action("one", "one", -1, first.eq(0), {"first": number(1)}),
        Action("two", "two", -1, first.eq(1) & second.eq(0), {"second": number(1)}),
        Action("three", "three", -1, third.eq(0), {"third": number(1)}),
    )
    layout = Layout([Variable(name, 1, "a switch") for name in ("first", "second", "third")])
    plain = System("switches", "switches.test", "none", layout, dict.fromkeys(layout.index, 0), actions)
    return replace(plain, **parts)


def walked(built: System, *names: str) -> list[tuple[bool, bool, dict[str, tuple[int, ...]]]]:
    """What each step of a path matters for what fails in the end."""
    from hicache_fsm.explore import Trace

    numbers = {action.name: place for place, action in enumerate(built.actions)}
    state, steps = dict(built.initial), []
    for name in names:
        action = built.actions[numbers[name]]
        assert evaluate(action.guard, state)
        steps.append(step_of(built, state, numbers[name]))
        state = {**state, **{n: evaluate(v, state) for n, v in action.updates.items()}}
    found = matters(built, "planted", Trace("", tuple(steps)))
    return [(each.counts, each.fails, dict(each.sets)) for each in found]


def test_a_step_matters_if_what_fails_reads_what_it_set() -> None:
    built = switches(states=(StateCheck("planted", ~variable("second").eq(1)),))
    assert walked(built, "one", "two") == [
        (True, False, {"first": (2,)}),
        (True, False, {"second": (3,)}),
    ]


def test_a_step_that_nothing_depends_on_is_beside_the_point() -> None:
    built = switches(states=(StateCheck("planted", ~variable("second").eq(1)),))
    assert [counts for counts, _, _ in walked(built, "three", "one", "two")] == [False, True, True]


def test_of_a_step_check_the_last_step_is_what_fails() -> None:
    check = StepCheck("planted", lambda action, post: variable("first").eq(0) | post["second"].eq(0))
    found = walked(switches(steps=(check,)), "one", "three", "two")
    assert found == [(True, False, {"first": (3, 4)}), (False, False, {}), (True, True, {})]


def test_of_a_goal_the_last_step_puts_it_out_of_reach() -> None:
    goal = Goal("planted", "", variable("first").eq(1), variable("second").eq(1), lambda a: a.name == "one")
    assert walked(switches(goals=(goal,)), "one") == [(True, True, {"first": (2,)})]


def test_support_is_what_decides_a_value_in_one_state() -> None:
    a, b, c = (variable(name) for name in "abc")
    state = {"a": 1, "b": 0, "c": 0}
    assert support(a.eq(1) & b.eq(1), state) == {"b"}
    assert support(a.eq(1) | b.eq(1), state) == {"a"}
    assert support(where(a.eq(1), b, c), state) == {"a", "b"}
    assert support(a + b, state) == {"a", "b"}


def test_every_step_of_a_shortest_path_of_the_shipped_findings_matters() -> None:
    built = system(SPEC, "seed", "admission.revoking")
    result = explore(built, engine="numpy")
    assert set(result.violated) == {"marker-owned", "pin-owned", "no-residue", "asked-armed"}
    for name in result.violated:
        trace = result.verdicts[name].trace
        assert trace is not None
        assert all(each.counts for each in matters(built, name, trace)), name


def test_dropping_a_step_that_matters_breaks_a_shortest_path() -> None:
    built = system(SPEC, "sglang-0.5.23", "admission.scarce")
    trace = explore(built, until=["one-in-flight"]).verdicts["one-in-flight"].trace
    assert trace is not None
    for left_out in range(len(trace) - 1):
        state, enabled = dict(built.initial), True
        for place, step in enumerate(trace.steps):
            action = built.actions[step.number]
            if place == left_out or not enabled:
                continue
            enabled = bool(evaluate(action.guard, state))
            state = {**state, **{n: evaluate(v, state) for n, v in action.updates.items()}}
        assert not enabled or len(trace) == 1


def test_an_explanation_names_the_finding_and_the_code() -> None:
    built = system(SPEC, "sglang-0.5.23", "admission.scarce")
    found = explain(SPEC, built, explore(built, until=["one-in-flight"]).verdicts["one-in-flight"])
    assert found.finding is not None
    assert found.finding.upstream == ("#39318",)
    assert found.version == "0.5.23"
    assert any("ongoing_prefetch[handle]" in code for place in found.places for code in place.code)
    assert [row[3] for row in found.rows][-1] == "this step fails"


def test_a_planted_violation_is_explained_by_the_newest_code() -> None:
    mutant = apply_witness(SPEC, SPEC.invariants["pin-owned"].witness)
    built = system(mutant, "recommended", "admission.scarce")
    found = explain(mutant, built, explore(built, until=["pin-owned"]).verdicts["pin-owned"])
    assert found.finding is None
    assert found.version == "0.5.23"
    assert "pin.pinned" in {place.state for place in found.places}


def test_there_is_nothing_to_explain_of_what_holds() -> None:
    with pytest.raises(ValueError, match="no counterexample"):
        explain(SPEC, system(SPEC, "recommended", "node.two"), Verdict("load-exclusive", "HELD"))
