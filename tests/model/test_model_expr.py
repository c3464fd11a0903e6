"""The expression language: its readers agree."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hicache_fsm.model.expr import (
    FALSE,
    TRUE,
    Expr,
    evaluate,
    maximum,
    minimum,
    number,
    substitute,
    variable,
    where,
)
from hicache_fsm.model.program import Program

NAMES = ("a", "b", "c")
STATES = st.fixed_dictionaries({name: st.integers(0, 3) for name in NAMES})


def numbers() -> st.SearchStrategy[Expr]:
    leaves = st.one_of(st.integers(0, 3).map(number), st.sampled_from(NAMES).map(variable))
    return st.recursive(leaves, _larger, max_leaves=12)


def _larger(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(inner, inner)
    compared = st.one_of(pairs.map(lambda p: p[0].eq(p[1])), pairs.map(lambda p: p[0].le(p[1])))
    joined = st.tuples(compared, compared)
    conditions = st.one_of(
        compared,
        joined.map(lambda p: p[0] & p[1]),
        joined.map(lambda p: p[0] | p[1]),
        compared.map(lambda c: ~c),
        st.sampled_from([TRUE, FALSE]),
    )
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: minimum(*p)),
        pairs.map(lambda p: maximum(*p)),
        st.tuples(conditions, inner, inner).map(lambda t: where(*t)),
    )


@given(numbers(), st.lists(STATES, min_size=1, max_size=5))
def test_columns_and_integers_give_the_same_values(expr: Expr, states: list[dict[str, int]]) -> None:
    columns = {name: np.array([state[name] for state in states], np.int8) for name in NAMES}
    values = np.broadcast_to(Program([expr]).run(columns)[0], len(states))
    assert values.tolist() == [evaluate(expr, state) for state in states]


@given(numbers(), STATES)
def test_substituting_a_state_leaves_its_value(expr: Expr, state: dict[str, int]) -> None:
    known = substitute(expr, {name: number(value) for name, value in state.items()})
    assert known == number(evaluate(expr, state))


def test_equal_expressions_are_one_step_of_a_program() -> None:
    a, b = variable("a"), variable("b")
    program = Program([(a + b).eq(1), (a + b).eq(2)])
    assert program.inputs == ["a", "b"]


def test_what_is_known_is_folded() -> None:
    a = variable("a")
    assert (number(1) + 2).eq(3) == TRUE
    assert (a.eq(1) & ~a.eq(1)) == FALSE
    assert (a.eq(1) | ~a.eq(1)) == TRUE
    assert where(a.eq(1), a, a) == a
