"""A finished search as a labelled graph of observed states, whoever did the searching."""

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass

State = tuple[Hashable, ...]
Edge = tuple[str, State]
"""A label, and the state that the step leads to."""


@dataclass(frozen=True, slots=True)
class Path:
    """A shortest way from the initial state: the labels of its steps."""

    steps: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.steps) if self.steps else "the initial state"


class Graph:
    """`names` says what the places of a state are; `edges` has every reachable state, with its steps.

    A step that leaves the observed state as it is counts as none.
    """

    __slots__ = ("_parents", "depths", "edges", "initial", "names")

    def __init__(
        self, names: tuple[str, ...], initial: State, edges: Mapping[State, Collection[Edge]]
    ) -> None:
        self.names = names
        self.initial = initial
        self.edges: dict[State, frozenset[Edge]] = {}
        self.depths = {initial: 0}
        self._parents: dict[State, tuple[State, str]] = {}
        level = [initial]
        while level:
            level = self._expand(level, edges)

    def _expand(self, level: list[State], edges: Mapping[State, Collection[Edge]]) -> list[State]:
        after: list[State] = []
        for state in level:
            steps = frozenset(edge for edge in edges.get(state, ()) if edge[1] != state)
            self.edges[state] = steps
            for label, reached in steps:
                if reached not in self.depths:
                    self.depths[reached] = self.depths[state] + 1
                    self._parents[reached] = (state, label)
                    after.append(reached)
        return after

    @property
    def distinct(self) -> int:
        """Distinct states."""
        return len(self.edges)

    @property
    def depth(self) -> int:
        """The longest shortest path, in steps."""
        return max(self.depths.values())

    @property
    def steps(self) -> int:
        """Distinct labelled edges."""
        return sum(map(len, self.edges.values()))

    def path(self, state: State) -> Path:
        """A shortest path to a state."""
        labels: list[str] = []
        while state in self._parents:
            state, label = self._parents[state]
            labels.append(label)
        return Path(tuple(reversed(labels)))

    def relabelled(self, label: Callable[[str], str | None]) -> "Graph":
        """The same with other labels; steps whose label becomes None are gone, and what only they reach."""
        edges = {
            state: {(new, reached) for old, reached in steps if (new := label(old)) is not None}
            for state, steps in self.edges.items()
        }
        return Graph(self.names, self.initial, edges)

    def projected(self, names: tuple[str, ...], of: Callable[[Mapping[str, Hashable]], State]) -> "Graph":
        """The same as seen by a coarser view."""
        seen = {state: of(self.show(state)) for state in self.edges}
        edges: dict[State, set[Edge]] = {}
        for state, steps in self.edges.items():
            edges.setdefault(seen[state], set()).update((label, seen[reached]) for label, reached in steps)
        return Graph(names, seen[self.initial], edges)

    def show(self, state: State) -> dict[str, Hashable]:
        """A state by the names of its places."""
        return dict(zip(self.names, state, strict=True))
