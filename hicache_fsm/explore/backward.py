"""The explored graph, and which of its states can still reach a goal."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hicache_fsm.explore.engine import Target, out_of_reach
from hicache_fsm.explore.space import Space
from hicache_fsm.model.expr import Expr
from hicache_fsm.model.layout import Words
from hicache_fsm.model.program import Program
from hicache_fsm.model.system import Goal, System

Mask = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Edges:
    """Steps of one action: the number of each source in order of discovery, and the state it leads to."""

    action: int
    sources: Ids
    targets: Words


class Graph:
    """All states, numbered in order of discovery, and all steps between them."""

    def __init__(self, levels: Sequence[Words], visited: Words, edges: Sequence[Edges]) -> None:
        self.keys = np.concatenate(levels)
        numbers = np.empty(visited.size, np.uint32)
        numbers[np.searchsorted(visited, self.keys)] = np.arange(visited.size, dtype=np.uint32)
        self.edges = [(e.action, e.sources, numbers[np.searchsorted(visited, e.targets)]) for e in edges]
        starts = np.cumsum([0, *(level.size for level in levels)])
        self._starts = starts

    @property
    def levels(self) -> int:
        """How many levels there are: one more than the depth."""
        return len(self._starts) - 1

    def level(self, depth: int) -> slice:
        """The numbers of the states of one level."""
        return slice(int(self._starts[depth]), int(self._starts[depth + 1]))

    def count(self) -> int:
        """How many distinct pairs of a state and its next there are."""
        if not self.edges:
            return 0
        pairs = np.concatenate(
            [(sources.astype(np.uint64) << np.uint64(32)) | targets for _, sources, targets in self.edges]
        )
        pairs.sort()
        return int(np.count_nonzero(pairs[1:] != pairs[:-1])) + 1

    def depth(self, number: int) -> int:
        """The length of the shortest path to a state."""
        return int(np.searchsorted(self._starts, number, side="right")) - 1

    def reaching(self, goal: Mask, actions: frozenset[int]) -> Mask:
        """The states from which steps of `actions` can reach `goal`."""
        good = goal.copy()
        pending = [(s, t) for action, s, t in reversed(self.edges) if action in actions]
        growing = True
        while growing:
            growing = False
            left: list[tuple[Ids, Ids]] = []
            for sources, targets in pending:
                undecided = ~good[sources]
                here, there = sources[undecided], targets[undecided]
                hit = good[there]
                if hit.any():
                    growing = True
                    good[here[hit]] = True
                    here, there = here[~hit], there[~hit]
                if here.size:
                    left.append((here, there))
            pending = left
        return good


def stuck(system: System, space: Space, graph: Graph, goal: Goal) -> Target | None:
    """The smallest state of the first level with one that ought to reach the goal and cannot."""
    start = mask_of(space, graph, goal.start)
    reached = mask_of(space, graph, goal.goal)
    allowed = frozenset(n for n, action in enumerate(system.actions) if goal.allowed(action))
    lost = start & ~graph.reaching(reached, allowed)
    if not lost.any():
        return None
    depth = graph.depth(int(np.argmax(lost)))
    here = graph.level(depth)
    return out_of_reach(goal, depth, space.smallest(graph.keys[here][lost[here]]))


def mask_of(space: Space, graph: Graph, condition: Expr) -> Mask:
    """In which of the graph's states a condition holds."""
    program = Program([condition])
    mask = np.empty(graph.keys.size, np.bool_)
    for first, keys, columns in space.chunks(graph.keys):
        mask[first : first + keys.size] = program.run(columns)[0]
    return mask
