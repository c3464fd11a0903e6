"""Graphs and their first difference."""

import pytest

from hicache_fsm.conform.compare import difference
from hicache_fsm.conform.graph import Graph, State

LEFT: dict[State, set[tuple[str, State]]] = {
    (0,): {("go r0", (1,)), ("stay", (0,))},
    (1,): {("go r1", (2,)), ("back", (0,))},
    (2,): set(),
    (9,): {("never", (0,))},
}


def _graph(edges: dict[State, set[tuple[str, State]]] = LEFT) -> Graph:
    return Graph(("x",), (0,), edges)


def test_only_reachable_states_and_steps_that_change_something_count() -> None:
    graph = _graph()
    assert (graph.distinct, graph.depth, graph.steps) == (3, 2, 3)
    assert str(graph.path((2,))) == "go r0; go r1"
    assert str(graph.path((0,))) == "the initial state"


def test_steps_can_be_renamed_or_left_out_with_what_only_they_reach() -> None:
    bare = _graph().relabelled(lambda label: label.partition(" ")[0])
    assert {label for label, _ in bare.edges[(0,)]} == {"go"}
    assert _graph().relabelled(lambda label: None if label == "go r1" else label).distinct == 2


def test_a_coarser_view_joins_states() -> None:
    seen = _graph().projected(("odd",), lambda values: (int(values["x"] == 1),))
    assert (seen.distinct, seen.depth) == (2, 1)


def test_equal_graphs_do_not_differ() -> None:
    assert difference(("a", "b"), _graph(), _graph()) is None


def test_the_first_difference_has_a_path_from_each_side_and_the_steps_of_one_only() -> None:
    other = {**LEFT, (1,): {("go r1", (2,)), ("jump", (2,))}}
    found = difference(("a", "b"), _graph(), _graph(other))
    assert found is not None
    assert found.state == {"x": 1}
    assert [path.steps for path in found.paths] == [("go r0",), ("go r0",)]
    assert [[str(step) for step in only] for only in found.only] == [["back (x: 1 → 0)"], ["jump (x: 1 → 2)"]]
    assert "b: reached by go r0" in str(found)
    assert found.as_json()["sides"]["a"]["only"] == ["back (x: 1 → 0)"]


def test_another_initial_state_is_a_difference() -> None:
    found = difference(("a", "b"), _graph(), Graph(("x",), (1,), LEFT))
    assert found is not None
    assert "another initial state" in str(found)


def test_sides_that_observe_different_things_are_not_compared() -> None:
    with pytest.raises(ValueError, match="observes"):
        difference(("a", "b"), _graph(), Graph(("y",), (0,), LEFT))
