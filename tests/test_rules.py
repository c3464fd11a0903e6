import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_fsm.rules import anchor_cap, invalidate_beyond, keep_pages, retry_due

pages = st.integers(0, 64)
tokens = st.integers(0, 10**9)
transfers = st.lists(st.tuples(st.none() | pages, pages), max_size=4)


@pytest.mark.parametrize(
    ("fraction", "pool", "context", "slack", "cap"),
    [
        (0.5, 1000, 200, 0, 500),
        (0.5, 1000, 500, 0, 500),
        (0.5, 1000, 501, 0, 499),
        (0.5, 1000, 500, 64, 436),
        (0.5, 1000, 1000, 0, 0),
        (0.5, 1000, 4000, 0, 0),
        (0.5, 1001, 1, 0, 500),
        (0.0, 1000, 1, 0, 0),
        (1.0, 1000, 1, 0, 999),
        (0.5, 0, 1, 0, 0),
    ],
)
def test_the_pin_cap_is_a_share_of_the_pool_that_leaves_the_context_and_the_slack_free(
    fraction: float, pool: int, context: int, slack: int, cap: int
) -> None:
    assert anchor_cap(fraction, pool, context, slack) == cap


@given(st.floats(0, 1), tokens, st.integers(1, 10**9), tokens)
def test_a_positive_pin_cap_always_leaves_one_largest_request_unpinned(
    fraction: float, pool: int, context: int, slack: int
) -> None:
    cap = anchor_cap(fraction, pool, context, slack)
    assert 0 <= cap <= math.floor(fraction * pool)
    assert cap == 0 or pool - cap >= context + slack


@pytest.mark.parametrize("unknown", [None, 0])
def test_an_unknown_context_length_is_an_error_and_not_a_cap_without_headroom(unknown: int | None) -> None:
    with pytest.raises(ValueError, match="context length is unknown"):
        anchor_cap(0.5, 1000, unknown)


@pytest.mark.parametrize(
    ("fraction", "pool", "context", "slack"),
    [
        (-0.1, 1, 1, 0),
        (math.nan, 1, 1, 0),
        (math.inf, 1, 1, 0),
        (0.5, -1, 1, 0),
        (0.5, 1, -1, 0),
        (0.5, 1, 1, -1),
    ],
)
def test_the_pin_cap_refuses_negative_and_non_finite_numbers(
    fraction: float, pool: int, context: int, slack: int
) -> None:
    with pytest.raises(ValueError, match="finite numbers from 0 up"):
        anchor_cap(fraction, pool, context, slack)


@pytest.mark.parametrize(
    ("completed", "chain", "served", "kept"),
    [
        (5, 8, [], 5),
        (5, 8, [(3, 3)], 5),
        (8, 8, [(3, 2)], 5),
        (8, 8, [(3, 0)], 5),
        (4, 8, [(3, 2)], 4),
        (8, 8, [(8, 7)], 0),
        (8, 8, [(9, 0)], 0),
        (8, 8, [(None, 0)], 0),
        (8, 8, [(None, 8), (3, 3)], 0),
        (8, 8, [(3, 2), (5, 4)], 3),
        (8, 8, [(0, 0)], 8),
        (0, 8, [(3, 3)], 0),
    ],
)
def test_a_discard_keeps_the_leading_pages_that_every_pool_served(
    completed: int, chain: int, served: list[tuple[int | None, int]], kept: int
) -> None:
    assert keep_pages(completed, chain, served) == kept


@given(pages, pages, transfers)
def test_the_order_of_transfers_is_irrelevant_and_another_one_never_keeps_more(
    completed: int, chain: int, served: list[tuple[int | None, int]]
) -> None:
    kept = keep_pages(completed, chain, served)
    assert kept == keep_pages(completed, chain, served[::-1])
    assert 0 <= kept <= keep_pages(completed, chain, served[:-1]) <= completed


@pytest.mark.parametrize(
    ("completed", "chain", "served"), [(-1, 1, []), (1, -1, []), (1, 1, [(-1, 0)]), (1, 1, [(1, -1)])]
)
def test_negative_pages_are_refused(completed: int, chain: int, served: list[tuple[int | None, int]]) -> None:
    with pytest.raises(ValueError, match="pages are counted from 0 up"):
        keep_pages(completed, chain, served)


def test_the_beliefs_dropped_are_those_of_the_pages_from_the_first_unserved_one_on() -> None:
    assert invalidate_beyond({"a", "b", "c", "x"}, ["a", "b", "c", "d"], 1) == {"b", "c"}
    assert invalidate_beyond({"a", "b"}, ["a", "b"], 2) == frozenset()
    assert invalidate_beyond({"a", "b"}, ["a", "b"], 0) == {"a", "b"}
    assert invalidate_beyond(set(), ["a"], 0) == frozenset()


@given(st.sets(pages), st.lists(pages, unique=True), pages)
def test_what_stays_believed_of_a_chain_was_served(believed: set[int], chain: list[int], keep: int) -> None:
    left = believed - invalidate_beyond(believed, chain, keep)
    assert left & set(chain) <= set(chain[:keep])
    assert left - set(chain) == believed - set(chain)


def test_keeping_a_negative_number_of_pages_is_refused() -> None:
    with pytest.raises(ValueError, match="keep -1"):
        invalidate_beyond({"a"}, ["a"], -1)


@pytest.mark.parametrize("interval", [1, 2, 8])
def test_a_retry_is_due_on_the_sweep_after_interval_others(interval: int) -> None:
    assert [retry_due(waited, interval) for waited in range(interval + 2)] == [False] * interval + [
        True,
        True,
    ]


@given(st.integers(0, 100), st.integers(1, 100))
def test_pacing_agrees_with_the_upstream_counter_and_with_the_later_due_step(
    first: int, interval: int
) -> None:
    polls, seed = 0, first
    while (polls := polls + 1) <= interval:
        seed += 1
    ours = next(now for now in range(first, first + 300) if retry_due(now - first, interval))
    assert ours == seed == first + interval


def test_with_interval_zero_nothing_is_ever_due() -> None:
    assert not any(retry_due(waited, 0) for waited in range(10))


@pytest.mark.parametrize(("waited", "interval"), [(-1, 1), (0, -1)])
def test_negative_passes_are_refused(waited: int, interval: int) -> None:
    with pytest.raises(ValueError, match="passes are counted from 0 up"):
        retry_due(waited, interval)
