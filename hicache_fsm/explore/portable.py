"""The search in numpy: on every machine, and what the compiled one is held against."""

from collections import Counter
from collections.abc import Collection
from itertools import chain

import numpy as np

from hicache_fsm.explore.backward import Edges, Graph, stuck
from hicache_fsm.explore.engine import Packed, Target
from hicache_fsm.explore.expand import Batch, Expander
from hicache_fsm.explore.sets import contained, distinct, merge
from hicache_fsm.explore.symmetry import Symmetry
from hicache_fsm.model.layout import Column, Words
from hicache_fsm.model.program import Program
from hicache_fsm.model.system import System


class Portable:
    """The engine on sorted arrays of keys; with `symmetry`, on those of states that stand for others, too."""

    name = "numpy"

    def __init__(
        self, system: System, limit: int, keep_edges: bool, symmetry: Symmetry | None = None
    ) -> None:
        self.generated = 0
        self.cut = False
        self.taken: Counter[tuple[str, int]] = Counter()
        self._system = system
        self._limit = limit
        self._keep_edges = keep_edges
        self._symmetry = symmetry
        self._expander = Expander(system)
        self.space = self._expander.space
        self._checks = Program([check.holds for check in system.states])
        first = np.array([self.space.key(system.layout.pack(system.initial))], np.uint64)
        self._visited = first
        self._levels = [first]
        self._edges: list[Edges] = []
        self._graph: Graph | None = None
        self._broken_states: dict[int, Target] = {}
        self._broken_steps: dict[int, Target] = {}

    def close(self) -> None:
        """Nothing to give back that Python does not."""

    @property
    def distinct(self) -> int:
        """States found so far."""
        return int(self._visited.size)

    @property
    def bytes(self) -> int:
        """Memory held for the states found: each is in its level and among the visited, and has its steps."""
        return 16 * self.distinct + sum(edge.targets.nbytes + edge.sources.nbytes for edge in self._edges)

    def advance(self) -> int:
        """Expands the last level; returns how many states it led to that are new."""
        depth, level = len(self._levels) - 1, self._levels[-1]
        before = self.distinct - level.size
        parts: list[Words] = []
        for first, keys, columns in self.space.chunks(level):
            self._check(depth, keys, columns)
            after: list[Words] = []
            for batch in self._expander.batches(keys, columns):
                self._note(depth, keys, batch)
                after.append(batch.keys)
                if self._keep_edges:
                    sources = (batch.sources + (before + first)).astype(np.uint32)
                    self._edges.append(Edges(batch.action, sources, batch.keys))
            parts.append(self._canonical(distinct(after)))
        reached = distinct(parts)
        fresh = reached[~contained(reached, self._visited)]
        if fresh.size:
            self._visited = merge(self._visited, fresh)
            self._levels.append(fresh)
            self.cut = self.distinct > self._limit
        return int(fresh.size)

    def violations(self) -> list[Target]:
        """What broke a state or step check so far."""
        return [*chain(self._broken_states.values(), self._broken_steps.values())]

    def parents(self, depth: int, wanted: Collection[Packed]) -> dict[Packed, tuple[Packed, int]]:
        """For each wanted state the smallest state of level `depth` that steps to it, and the first action."""
        keys_of = {state: np.uint64(self.space.key(state)) for state in wanted}
        found: dict[Packed, tuple[Packed, int]] = {}
        for _, keys, columns in self.space.chunks(self._levels[depth]):
            for batch in self._expander.batches(keys, columns):
                reached = self._canonical(batch.keys)
                for state, key in keys_of.items():
                    hits = reached == key
                    if hits.any():
                        parent = (self.space.smallest(keys[batch.sources[hits]]), batch.action)
                        found[state] = min(found.get(state, parent), parent)
        return found

    def canonical(self, state: Packed) -> Packed:
        """The words of the state that stands for this one."""
        key = np.array([self.space.key(state)], np.uint64)
        return self.space.packed(int(self._canonical(key)[0]))

    def orbits(self) -> int:
        """How many states those found stand for."""
        if self._symmetry is None:
            return self.distinct
        sizes = (
            self._symmetry.orbit_sizes(self.space, part) for _, part, _ in self.space.chunks(self._visited)
        )
        return sum(int(each.sum()) for each in sizes)

    def _canonical(self, keys: Words) -> Words:
        return keys if self._symmetry is None else self._symmetry.canonical(self.space, keys)

    def stuck(self) -> list[Target]:
        """For each goal that is out of reach, a state that ought to reach it."""
        graph = self.graph()
        lost = (stuck(self._system, self.space, graph, goal) for goal in self._system.goals)
        return [target for target in lost if target is not None]

    def edges(self) -> int | None:
        """Distinct pairs of a state and its next; None if they were not kept."""
        return self.graph().count() if self._keep_edges else None

    def graph(self) -> Graph:
        """The states and steps of a complete search that kept them."""
        if self._graph is None:
            self._graph = Graph(self._levels, self._visited, self._edges)
        return self._graph

    def _check(self, depth: int, keys: Words, columns: dict[str, Column]) -> None:
        for number, holds in enumerate(self._checks.run(columns)):
            if not np.all(holds):
                broken = np.logical_not(np.broadcast_to(holds, keys.shape))
                state = self.space.smallest(keys[broken])
                target = Target(self._system.states[number].invariant, depth, state)
                known = self._broken_states.get(number, target)
                self._broken_states[number] = min(known, target, key=lambda each: each.order)

    def _note(self, depth: int, keys: Words, batch: Batch) -> None:
        self.generated += batch.sources.size
        for row, count in batch.taken:
            self.taken[row.machine, row.number] += count
        for number, mask in batch.broken:
            state = self.space.smallest(keys[batch.sources[mask]])
            target = Target(self._system.steps[number].invariant, depth, state, last=batch.action)
            known = self._broken_steps.get(number, target)
            self._broken_steps[number] = min(known, target, key=lambda each: each.order)
