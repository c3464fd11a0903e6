"""Breadth-first search of every reachable state, a level at a time."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np

from hicache_fsm.explore.backward import Edges, Graph, stuck
from hicache_fsm.explore.expand import Batch, Expander
from hicache_fsm.explore.result import Outcome, Result, Trace, Verdict
from hicache_fsm.explore.sets import contained, distinct, merge
from hicache_fsm.explore.trace import Target, traces
from hicache_fsm.model.layout import Column, Words
from hicache_fsm.model.program import Program
from hicache_fsm.model.system import System

Progress = Callable[[int, int, int], None]
"""Called after each level with its depth, the states found on it, and the distinct states so far."""


@dataclass(slots=True)
class _Search:
    system: System
    keep_edges: bool
    expander: Expander
    checks: Program
    levels: list[Words]
    visited: Words
    generated: int = 0
    complete: bool = True
    found: dict[str, Target] = field(default_factory=dict)
    edges: list[Edges] = field(default_factory=list)
    taken: Counter[tuple[str, int]] = field(default_factory=Counter)

    def expand(self) -> Words:
        """The distinct states that follow the last level's, with everything about the level noted."""
        depth, level = len(self.levels) - 1, self.levels[-1]
        before = self.visited.size - level.size
        parts: list[Words] = []
        for first, keys, columns in self.expander.space.chunks(level):
            self._check(depth, keys, columns)
            after: list[Words] = []
            for batch in self.expander.batches(keys, columns):
                self._note(depth, keys, batch)
                after.append(batch.keys)
                if self.keep_edges:
                    sources = (batch.sources + (before + first)).astype(np.uint32)
                    self.edges.append(Edges(batch.action, sources, batch.keys))
            parts.append(distinct(after))
        return distinct(parts)

    def _check(self, depth: int, keys: Words, columns: dict[str, Column]) -> None:
        for check, holds in zip(self.system.states, self.checks.run(columns), strict=True):
            if check.invariant not in self.found and not np.all(holds):
                first = int(np.argmin(np.broadcast_to(holds, keys.shape)))
                self.found[check.invariant] = Target(check.invariant, depth, int(keys[first]))

    def _note(self, depth: int, keys: Words, batch: Batch) -> None:
        self.generated += batch.sources.size
        for row, count in batch.taken:
            self.taken[row.machine, row.number] += count
        for check, mask in batch.broken:
            invariant = self.system.steps[check].invariant
            known = self.found.get(invariant)
            if known is None or known.length > depth + 1:
                source = int(keys[batch.sources[int(np.argmax(mask))]])
                self.found[invariant] = Target(invariant, depth, source, last=batch.action)


def explore(
    system: System,
    *,
    max_states: int = 20_000_000,
    progress: Progress | None = None,
    until: Collection[str] = (),
    keep_edges: bool = True,
) -> Result:
    """Searches `system`.

    The search is cut, and what it has not seen violated is undetermined, once more than `max_states` states
    are found, or once every invariant in `until` is violated.  Steps are kept, 12 bytes each, unless
    `keep_edges` is false: goals are undetermined then.
    """
    started = time.perf_counter()
    expander = Expander(system)
    first = np.array([expander.space.key(system.initial)], np.uint64)
    checks = Program([check.holds for check in system.states])
    search = _Search(system, keep_edges, expander, checks, [first], first)
    while True:
        after = search.expand()
        fresh = after[~contained(after, search.visited)]
        if not fresh.size:
            break
        search.visited = merge(search.visited, fresh)
        search.levels.append(fresh)
        if progress:
            progress(len(search.levels) - 1, fresh.size, search.visited.size)
        done = bool(until) and search.found.keys() >= set(until)
        if done or search.visited.size > max_states:
            search.complete = False
            break
    return _conclude(search, started)


def _conclude(search: _Search, started: float) -> Result:
    system = search.system
    found = dict(search.found)
    edges = None
    if search.complete and search.keep_edges:
        graph = Graph(search.levels, search.visited, search.edges)
        edges = graph.count()
        for goal in system.goals:
            if goal.invariant not in found:
                target = stuck(system, search.expander.space, graph, goal)
                if target is not None:
                    found[goal.invariant] = target
    paths = traces(system, search.expander, search.levels, list(found.values()))
    unknown = set() if search.keep_edges else {goal.invariant for goal in system.goals}
    verdicts = {
        name: _verdict(name, paths.get(name), search.complete and name not in unknown)
        for name in system.invariants
    }
    distinct_states = int(search.visited.size)
    size = sum(edge.targets.nbytes + edge.sources.nbytes for edge in search.edges)
    return Result(
        system=system.name,
        configuration=system.configuration,
        profile=system.profile,
        distinct=distinct_states,
        generated=search.generated,
        edges=edges,
        depth=len(search.levels) - 1,
        seconds=time.perf_counter() - started,
        bytes_per_state=16 + size / distinct_states,
        complete=search.complete,
        verdicts=verdicts,
        taken=dict(search.taken),
    )


def _verdict(invariant: str, trace: Trace | None, complete: bool) -> Verdict:
    outcome: Outcome = "HELD" if complete else "UNDETERMINED"
    return Verdict(invariant, outcome) if trace is None else Verdict(invariant, "VIOLATED", trace)
