"""The search: what it counts, what it concludes, and what its traces show."""

from dataclasses import replace

import pytest
from naive import naive

from hicache_fsm.explore import Result, check_profile, explore
from hicache_fsm.explore.trace import Target
from hicache_fsm.model import Configuration, System, load_configurations, system
from hicache_fsm.model.expr import evaluate
from hicache_fsm.spec import load_spec

SPEC = load_spec()
KNOWN = load_configurations()


def smaller(name: str, constants: dict[str, int | bool] | None = None, **bounds: object) -> Configuration:
    known = KNOWN[name]
    return replace(
        known, constants={**known.constants, **(constants or {})}, bounds={**known.bounds, **bounds}
    )


TINY = {
    "one request": smaller("admission.alone", chain=1, host=1, attempts=1),
    "one request in two attempts": smaller(
        "admission.alone", {"max_attempts": 1, "interval": 1}, chain=1, host=1
    ),
    "one request with a tail": smaller("admission.alone", {"max_attempts": 1}, chain=2, host=2, attempts=1),
    "retries off": smaller("admission-disabled.interval", chain=1, host=1, attempts=1),
    "beliefs": smaller("belief.chain", chain=2, trailing=1),
    "nodes": KNOWN["node.two"],
    "ranks": KNOWN["ranks.two"],
}


@pytest.mark.parametrize("profile", SPEC.profiles)
@pytest.mark.parametrize("bounds", TINY)
def test_the_search_equals_a_naive_one(profile: str, bounds: str) -> None:
    built = system(SPEC, profile, TINY[bounds])
    result = explore(built)
    assert (result.distinct, result.depth, result.edges) == naive(built)


@pytest.mark.slow
def test_the_search_equals_a_naive_one_on_two_requests() -> None:
    built = system(SPEC, "recommended", "admission.revoking")
    result = explore(built)
    assert (result.distinct, result.depth, result.edges) == naive(built)


def test_a_search_that_hits_its_bound_is_undetermined_and_never_a_pass() -> None:
    result = explore(system(SPEC, "recommended", "admission.pair"), max_states=1000)
    assert not result.complete
    assert {verdict.outcome for verdict in result.verdicts.values()} == {"UNDETERMINED"}


def test_a_violation_found_before_the_bound_stands() -> None:
    result = explore(system(SPEC, "seed", "admission.pair"), max_states=1000)
    assert result.verdicts["asked-armed"].outcome == "VIOLATED"
    assert result.verdicts["headroom"].outcome == "UNDETERMINED"


def test_goals_are_undetermined_where_no_steps_were_kept() -> None:
    result = explore(system(SPEC, "recommended", "belief.chain"), keep_edges=False)
    assert result.edges is None
    assert result.verdicts["heals"].outcome == "UNDETERMINED"
    assert result.verdicts["belief-evidence"].outcome == "HELD"


def test_a_search_may_stop_at_a_violation() -> None:
    built = system(SPEC, "seed", "admission.pair")
    assert explore(built, until=["asked-armed"]).distinct < explore(built).distinct


def test_progress_tells_each_level() -> None:
    told: list[tuple[int, int, int]] = []
    result = explore(system(SPEC, "recommended", "node.two"), progress=lambda *level: told.append(level))
    assert [depth for depth, _, _ in told] == list(range(1, result.depth + 1))
    assert 1 + sum(found for _, found, _ in told) == told[-1][2] == result.distinct


def test_the_same_search_finds_the_same_traces() -> None:
    built = system(SPEC, "sglang-0.5.23", "admission.pair")
    first, second = explore(built), explore(built)
    assert first.verdicts == second.verdicts
    assert first.taken == second.taken


def _replay(built: System, result: Result, invariant: str) -> list[dict[str, int]]:
    """The states along a trace, each step checked to be one that the system can take."""
    trace = result.verdicts[invariant].trace
    assert trace is not None
    state = dict(built.initial)
    states = [state]
    codes = {v.name: {v.show(n): n for n in range(v.low, v.high + 1)} for v in built.layout.variables}
    for step in trace.steps:
        after = {**state, **{name: codes[name][new] for name, (_, new) in step.changed.items()}}
        assert any(
            step.action.startswith(action.name)
            and evaluate(action.guard, state)
            and {**state, **{n: evaluate(e, state) for n, e in action.updates.items()}} == after
            for action in built.actions
        )
        state = after
        states.append(state)
    return states


@pytest.mark.parametrize(
    "invariant", [f.invariant for f in SPEC.profiles["seed"].findings if f.shown_by == "search"]
)
def test_a_counterexample_can_be_replayed_step_by_step(invariant: str) -> None:
    kind = SPEC.invariants[invariant].systems[0]
    shown = {"admission": "admission.pair", "admission-disabled": "admission-disabled.interval"}
    # only a request that comes back under its id has an older question to be taken for
    name = "admission.retracted" if invariant == "one-in-flight" else shown.get(kind, "belief.chain")
    built = system(SPEC, "seed", name)
    result = explore(built)
    states = _replay(built, result, invariant)
    for check in built.states:
        if check.invariant == invariant:
            assert all(evaluate(check.holds, state) for state in states[:-1])


def test_a_trace_has_rows_for_a_table() -> None:
    trace = explore(system(SPEC, "seed", "admission.pair")).verdicts["asked-armed"].trace
    assert trace is not None
    assert trace.rows() == [
        (
            "1",
            "enqueue r0, prefetch.issue r0 [!asks, arms_unasked]",
            "r0.state: absent → missed, r0.marker: none → attempt 0",
        )
    ]
    assert [row.label for row in trace.steps[0].rows] == ["issue r0 [!asks, arms_unasked]"]


def test_a_step_that_breaks_a_check_counts_in_the_length() -> None:
    assert Target("paced", 4, 0).length == 4
    assert Target("paced", 4, 0, last=1).length == 5


def test_a_profile_is_checked_in_the_configurations_named() -> None:
    results = check_profile(SPEC, "recommended", names=["node.two", "ranks.two"])
    assert [result.configuration for result in results] == ["node.two", "ranks.two"]
