"""The model as a graph, state by state: `explore` keeps counts, a comparison needs the states themselves."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from hicache_fsm.conform.graph import Edge, Graph, State
from hicache_fsm.conform.views import View
from hicache_fsm.model import Action, System
from hicache_fsm.model.program import Program

Rows = npt.NDArray[np.int8]
"""States, one a row, with a variable a column."""


def model_graph(system: System, view: View, label: Callable[[Action], str]) -> Graph:
    """Every reachable state of `system` under `view`, with its steps."""
    search = _Search(system, view, label)
    variables = system.layout.variables
    level: Rows = np.array([[system.initial[v.name] for v in variables]], np.int8)
    initial = search.observe(level[0].tobytes())
    while level.size:
        level = search.expand(level)
    return Graph(view.names, initial, search.edges)


class _Search:
    def __init__(self, system: System, view: View, label: Callable[[Action], str]) -> None:
        self.edges: dict[State, set[Edge]] = {}
        self._layout = system.layout
        self._view = view
        self._seen: dict[bytes, State] = {}
        self._guards = Program([action.guard for action in system.actions])
        self._actions = [
            (
                label(action),
                [system.layout.index[name] for name in action.updates],
                Program(list(action.updates.values())),
            )
            for action in system.actions
        ]

    def observe(self, row: bytes) -> State:
        """The state of a row, as the view sees it."""
        if row not in self._seen:
            values = dict(zip(self._layout.index, np.frombuffer(row, np.int8).tolist(), strict=True))
            shown = {
                v.name: v.show(values[v.name]) if v.names else values[v.name] for v in self._layout.variables
            }
            self._seen[row] = self._view.of(shown)
        return self._seen[row]

    def expand(self, level: Rows) -> Rows:
        """Note the level's steps; returns the rows that they reach first."""
        sources = [self.edges.setdefault(self.observe(row.tobytes()), set()) for row in level]
        fresh: dict[bytes, None] = {}
        for label, source, row in self._steps(level):
            if row not in self._seen:
                fresh[row] = None
            sources[source].add((label, self.observe(row)))
        return np.frombuffer(b"".join(fresh), np.int8).reshape(len(fresh), level.shape[1])

    def _steps(self, level: Rows) -> Iterator[tuple[str, int, bytes]]:
        columns = {name: level[:, place] for name, place in self._layout.index.items()}
        for guard, (label, places, program) in zip(self._guards.run(columns), self._actions, strict=True):
            taken = np.flatnonzero(np.broadcast_to(guard, level.shape[:1]))
            if not taken.size:
                continue
            after = level[taken]
            values = program.run({name: columns[name][taken] for name in program.inputs})
            for place, value in zip(places, values, strict=True):
                after[:, place] = value
            for source, row in zip(taken.tolist(), after, strict=True):
                yield label, source, row.tobytes()
