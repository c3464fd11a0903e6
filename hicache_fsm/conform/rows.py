"""Which edges of the prefetch table a search of the admission system takes."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from hicache_fsm.conform.graph import Graph
from hicache_fsm.spec import Machine

LifecycleEdge = tuple[str, str, str]
"""Source, event and destination, whatever the guard."""

WITHIN: Final[Mapping[str, str]] = {
    "tick": "sweep",
    "enqueue": "issue",
    "retract": "issue",
    "orphan_answer": "miss",
}
"""The table's event that is part of a larger step."""

FOR_ALL: Final = frozenset({"tick", "flush", "detach"})
"""Steps that send every request in the queue its event."""

SWEPT: Final = frozenset({"missed", "pending"})


def table_edges(machine: Machine) -> frozenset[LifecycleEdge]:
    """What the table allows."""
    return frozenset((row.source, row.event, row.dest) for row in machine.transitions)


def taken_edges(graph: Graph, machine: Machine) -> frozenset[LifecycleEdge]:
    """What the steps of an admission graph do to each request; labels may lack their subject."""
    requests = sorted({name.partition(".")[0] for name in graph.names if name.endswith(".state")})
    found: set[LifecycleEdge] = set()
    for state, steps in graph.edges.items():
        before = graph.show(state)
        for label, reached in steps:
            event = label.partition(" ")[0]
            if WITHIN.get(event, event) in machine.events:
                found.update(_edges(event, before, graph.show(reached), requests, machine))
    return frozenset(found)


def _edges(
    event: str,
    before: Mapping[str, Hashable],
    after: Mapping[str, Hashable],
    requests: list[str],
    machine: Machine,
) -> Iterator[LifecycleEdge]:
    named = WITHIN.get(event, event)
    for who in requests:
        source, dest = str(before[f"{who}.state"]), str(after[f"{who}.state"])
        if event in FOR_ALL:
            if source in (SWEPT if event == "tick" else machine.states) and source not in machine.terminal:
                yield source, named, dest
        elif any(before[name] != after[name] for name in before if name.startswith(f"{who}.")):
            yield (machine.initial if named == "issue" else source), named, dest
