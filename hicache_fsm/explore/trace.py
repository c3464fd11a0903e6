"""Shortest paths to states, rebuilt backwards over the levels of a search: no parent is stored."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hicache_fsm.explore.expand import Expander
from hicache_fsm.explore.result import Trace, TraceStep
from hicache_fsm.explore.space import Space
from hicache_fsm.model.expr import evaluate
from hicache_fsm.model.layout import Words
from hicache_fsm.model.system import System


@dataclass(frozen=True, slots=True)
class Target:
    """A violation: a state at its depth and, if it takes one more step to see it, that action's number."""

    invariant: str
    depth: int
    key: int
    last: int | None = None
    about: str = ""

    @property
    def length(self) -> int:
        """The steps of the counterexample."""
        return self.depth + (self.last is not None)


def traces(
    system: System, expander: Expander, levels: Sequence[Words], targets: Sequence[Target]
) -> dict[str, Trace]:
    """A shortest trace for each target, by invariant."""
    paths: dict[str, list[tuple[int, int]]] = {target.invariant: [] for target in targets}
    at = {target.invariant: target.key for target in targets}
    depth_of = {target.invariant: target.depth for target in targets}
    for depth in range(max(depth_of.values(), default=0), 0, -1):
        wanted = {at[name] for name, deepest in depth_of.items() if deepest >= depth}
        parents = _parents(expander, levels[depth - 1], wanted)
        for name, deepest in depth_of.items():
            if deepest >= depth:
                source, action = parents[at[name]]
                paths[name].append((source, action))
                at[name] = source
    return {
        target.invariant: _trace(system, expander.space, target, [*reversed(paths[target.invariant])])
        for target in targets
    }


def _parents(expander: Expander, level: Words, wanted: set[int]) -> dict[int, tuple[int, int]]:
    """For each wanted state, a state of the level before it and the action between them: the first found."""
    found: dict[int, tuple[int, int]] = {}
    for _, keys, columns in expander.space.chunks(level):
        for batch in expander.batches(keys, columns):
            for key in [key for key in wanted if key not in found]:
                hits = batch.keys == np.uint64(key)
                if hits.any():
                    found[key] = (int(keys[batch.sources[int(np.argmax(hits))]]), batch.action)
        if len(found) == len(wanted):
            break
    return found


def _trace(system: System, space: Space, target: Target, path: list[tuple[int, int]]) -> Trace:
    if target.last is not None:
        path = [*path, (target.key, target.last)]
    steps = [_step(system, space.state(key), action) for key, action in path]
    where = "the state at the end" if target.last is None else "the last step"
    return Trace(target.about or f"{where} breaks {target.invariant}", tuple(steps))


def _step(system: System, before: dict[str, int], number: int) -> TraceStep:
    action = system.actions[number]
    after = {**before, **{name: evaluate(value, before) for name, value in action.updates.items()}}
    rows = tuple(row for row, condition in action.rows if evaluate(condition, before))
    changed = {
        each.name: (each.show(before[each.name]), each.show(after[each.name]))
        for each in system.layout.variables
        if before[each.name] != after[each.name]
    }
    name = action.name
    if action.subject < 0 and rows:
        top = [f"{row.machine}.{row.label}" for row in rows if row.machine == action.rows[0][0].machine]
        name += f" ({'; '.join(top)})"
    return TraceStep(name, rows, changed)
