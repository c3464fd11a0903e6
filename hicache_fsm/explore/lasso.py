"""Runs that go round for ever: a shortest way to a fair component, and a round in it that serves every fair group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hicache_fsm.explore.backward import Graph, Mask
from hicache_fsm.explore.result import Trace, TraceStep

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Lasso:
    """A run: `prefix`, then `loop` for ever; without a loop it stays where the prefix ends."""

    about: str
    prefix: tuple[TraceStep, ...]
    loop: tuple[TraceStep, ...]

    def trace(self) -> Trace:
        """The same as one list of steps, the last of which says what goes on for ever."""
        if not self.loop:
            return Trace(self.about, (*self.prefix, TraceStep("stays here for ever", (), {})))
        place = f"the state after step {len(self.prefix)}" if self.prefix else "the initial state"
        back = TraceStep(f"back to {place}, and so on for ever", (), {})
        return Trace(self.about, (*self.prefix, *self.loop, back))


class Steps:
    """All steps of a graph as arrays of one length: each one's action, and the states it leads from and to."""

    def __init__(self, graph: Graph) -> None:
        none = [np.empty(0, np.int32)]
        self.count = int(graph.keys.size)
        self.action: Ints = np.concatenate([np.full(s.size, a, np.int32) for a, s, _ in graph.edges] or none)
        self.source: Ints = np.concatenate([s.astype(np.int32) for _, s, _ in graph.edges] or none)
        self.target: Ints = np.concatenate([t.astype(np.int32) for _, _, t in graph.edges] or none)

    def marked(self, states: npt.NDArray[Any] | Sequence[int]) -> Mask:
        """The states of those numbers."""
        marked = np.zeros(self.count, np.bool_)
        marked[states] = True
        return marked

    def path(self, joins: Sequence[Mask], ends: Mask, among: Mask) -> tuple[int, list[int]] | None:
        """A shortest path to `ends` by steps of `among`: its first state, and its steps' numbers.

        It may begin with a state of `joins[n]`, which counts as n steps already.
        """
        via = np.full(self.count, -1, np.int64)
        seen = np.zeros(self.count, np.bool_)
        front = np.zeros(self.count, np.bool_)
        length = 0
        while length < len(joins) or front.any():
            if length < len(joins):
                front |= joins[length] & ~seen
            seen |= front
            if (front & ends).any():
                return self._back(int(np.argmax(front & ends)), via)
            found = np.flatnonzero(among & front[self.source] & ~seen[self.target])
            # Reversed, so that of several steps to a state the first one is kept.
            via[self.target[found[::-1]]] = found[::-1]
            front = self.marked(self.target[found])
            length += 1
        return None

    def _back(self, state: int, via: npt.NDArray[np.int64]) -> tuple[int, list[int]]:
        found: list[int] = []
        while via[state] >= 0:
            found.append(int(via[state]))
            state = int(self.source[found[-1]])
        return state, found[::-1]


@dataclass(frozen=True, slots=True)
class Group:
    """A fair group: the steps that it owns, and the states that enable one of them."""

    owned: Mask
    enabled: Mask


def to_fair(steps: Steps, graph: Graph, first: Mask, ends: Mask, among: Mask) -> tuple[list[int], int] | None:
    """Steps from the initial state by one of `first`, from there on of `among`, to one of `ends`; and which one."""
    joins = [np.zeros(steps.count, np.bool_) for _ in range(graph.levels)]
    for depth, offered in enumerate(joins):
        here = graph.level(depth)
        offered[here] = first[here]
    found = steps.path(joins, ends, among)
    if found is None:
        return None
    begin, later = found
    everything = np.ones(steps.source.size, np.bool_)
    way = steps.path([steps.marked([0])], steps.marked([begin]), everything)
    if way is None:
        raise AssertionError("every state is reachable")
    end = int(steps.target[later[-1]]) if later else begin
    return [*way[1], *later], end


def fair_round(steps: Steps, groups: Sequence[Group], state: int, within: Mask) -> list[int]:
    """Steps of the component `within` from `state` back to it that serve every group; none if it may stay.

    A group is served by one of its steps, or by a state that does not enable it.
    """
    if not any(group.enabled[state] for group in groups):
        return []
    at, taken = state, list[int]()
    seen = {state}
    for group in groups:
        if any(group.owned[step] for step in taken) or any(not group.enabled[each] for each in seen):
            continue
        own = within & group.owned
        component = steps.marked(steps.source[within])
        ends = (steps.marked(steps.source[own]) | ~group.enabled) & component
        taken += _path(steps, at, ends, within)
        at = int(steps.target[taken[-1]]) if taken else state
        if group.enabled[at]:
            taken.append(int(np.flatnonzero(own & (steps.source == at))[0]))
            at = int(steps.target[taken[-1]])
        seen |= {int(steps.target[step]) for step in taken}
    back = _path(steps, at, steps.marked([state]), within)
    return [*taken, *back]


def _path(steps: Steps, begin: int, ends: Mask, among: Mask) -> list[int]:
    found = steps.path([steps.marked([begin])], ends, among)
    if found is None:
        raise AssertionError("a component is strongly connected")
    return found[1]
