"""z3 reads an expression as integers do, and the open quantities stand for the rules' own arithmetic."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache_fsm.explore import explore
from hicache_fsm.model import load_configurations, system
from hicache_fsm.model.expr import Expr, evaluate, maximum, minimum, number, substitute, variable, where
from hicache_fsm.model.system import StateCheck, System
from hicache_fsm.rules import anchor_cap, keep_pages, retry_due
from hicache_fsm.spec import load_spec

z3 = pytest.importorskip("z3")

from hicache_fsm.prove.beliefs import beliefs_for_all, keep  # noqa: E402
from hicache_fsm.prove.conjuncts import Theory  # noqa: E402
from hicache_fsm.prove.lemmas import admission_theory  # noqa: E402
from hicache_fsm.prove.parametric import admission_for_all, any_scope  # noqa: E402
from hicache_fsm.prove.translate import Reader  # noqa: E402

SPEC = load_spec()
NAMES = ("x", "y", "z")
small = st.integers(-4, 4)
pages = st.integers(0, 12)
numbers = st.recursive(
    st.sampled_from([variable(name) for name in NAMES]) | small.map(number),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: minimum(*p)),
        st.tuples(inner, inner).map(lambda p: maximum(*p)),
        st.tuples(inner, inner, inner, inner).map(lambda p: where(p[0].le(p[1]), p[2], p[3])),
        st.tuples(inner, inner, inner, inner).map(
            lambda p: where(p[0].eq(p[1]) | ~p[1].lt(p[2]), p[2], p[3])
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(numbers, st.tuples(small, small, small))
def test_z3_and_integers_read_an_expression_alike(expression: Expr, values: tuple[int, int, int]) -> None:
    state = dict(zip(NAMES, values, strict=True))
    term = Reader({name: z3.IntVal(value) for name, value in state.items()}).term(expression)
    assert z3.simplify(term).as_long() == evaluate(expression, state)


@given(st.floats(0, 1), pages, st.integers(1, 12), pages)
def test_the_open_cap_is_the_rules_cap(fraction: float, device: int, context: int, slack: int) -> None:
    cap = any_scope(SPEC.profiles["recommended"].constants, 1).cap
    sizes = {"device": device, "context": context, "slack": slack, "share": math.floor(fraction * device)}
    assert evaluate(cap, sizes) == anchor_cap(fraction, device, context, slack)  # type: ignore[arg-type]


@given(pages, st.integers(1, 12))
def test_the_open_pace_is_the_rules_pace(waited: int, interval: int) -> None:
    due = any_scope(SPEC.profiles["recommended"].constants, 1).due(variable("waited"))
    assert bool(evaluate(due, {"waited": waited, "interval": interval})) == retry_due(waited, interval)


@given(pages, pages, pages, pages)
def test_the_open_discard_keeps_what_the_rule_keeps(done: int, chain: int, keys: int, hit: int) -> None:
    kept = keep(*map(variable, ("done", "chain", "keys", "hit")))
    sizes = {"done": done, "chain": chain, "keys": keys, "hit": hit}
    assert evaluate(kept, sizes) == keep_pages(done, chain, [(keys, hit)])


def _theory(bounded: str) -> tuple[System, Theory]:
    """A bounded system, and what is proved for all sizes with this system's sizes put in."""
    chosen = load_configurations()[bounded]
    found = system(SPEC, "recommended", bounded)
    scope = any_scope(SPEC.profiles["recommended"].constants, chosen.bounds["requests"])
    theory = admission_theory(SPEC, admission_for_all(SPEC, scope, bounded), scope)
    sizes = {**chosen.bounds, **chosen.constants, "slack": 1, "share": chosen.bounds["device"] // 2}
    sizes |= {f"anchor{i}": size for i, size in enumerate(sizes.pop("anchors"))}
    values = {name: number(int(value)) for name, value in sizes.items()}
    names = [StateCheck(c.name, substitute(c.holds, values)) for c in theory.conjuncts]
    return System(
        found.name, bounded, found.profile, found.layout, found.initial, found.actions, tuple(names)
    ), theory


@pytest.mark.parametrize("bounded", ["admission.alone", "admission.pair"])
def test_the_search_finds_every_conjunct_in_every_reachable_state(bounded: str) -> None:
    checked, theory = _theory(bounded)
    verdicts = explore(checked).verdicts
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == {
        c.name: "HELD" for c in theory.conjuncts
    }


def test_every_step_of_the_bounded_beliefs_is_one_of_the_chain_of_any_length() -> None:
    chain, trailing = 3, 2
    bounded = system(SPEC, "recommended", "belief.chain")
    general, _ = beliefs_for_all(SPEC, "recommended")
    chance = random.Random(6)
    steps = 0
    for _ in range(60):
        state = {v.name: chance.randint(v.low, v.high) for v in bounded.layout.variables}
        page, key = chance.randrange(chain), chance.randrange(trailing)
        names = {f"kv{page}": "kv", f"aux{chain - trailing + key}": "aux"}

        def shown(values: dict[str, int], names: dict[str, str] = names) -> dict[str, int]:
            own = {f"{to}.{s}": values[f"{at}.{s}"] for at, to in names.items() for s in ("state", "stored")}
            return {**own, "fetching": values["fetching"]}

        sizes = {"chain": chain, "trailing": trailing, "page": page, "key": key}
        for action in bounded.actions:
            if not evaluate(action.guard, state):
                continue
            after = {**state, **{name: evaluate(v, state) for name, v in action.updates.items()}}
            chosen = {"done": 0, "hit": 0, "leading": 0, **(action.parameters or {})}
            options = (
                [{**chosen, "leading": n} for n in range(chain + 1)] if action.event == "ask" else [chosen]
            )
            before = shown(state)
            found = [before] + [
                {
                    **before,
                    **{name: evaluate(v, {**before, **sizes, **each}) for name, v in step.updates.items()},
                }
                for each in options
                for step in general.actions
                if step.event == action.event and evaluate(step.guard, {**before, **sizes, **each})
            ]
            steps += shown(after) != before
            assert shown(after) in found, action.name
    assert steps > 300
