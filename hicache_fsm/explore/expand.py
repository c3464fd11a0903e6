"""Successors of many states at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hicache_fsm.explore.space import Space
from hicache_fsm.model.expr import TRUE, Expr, variable
from hicache_fsm.model.layout import Column, ModelError, Variable, Words
from hicache_fsm.model.program import Program, Value
from hicache_fsm.model.system import Action, Row, System

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Batch:
    """The steps of one action from a chunk: `sources` index the chunk, `keys` are the states after.

    `broken` pairs the position of a step check with the steps that break it; `taken` counts steps by row.
    """

    action: int
    sources: npt.NDArray[np.intp]
    keys: Words
    broken: tuple[tuple[int, Mask], ...]
    taken: tuple[tuple[Row, int], ...]


class _Updates:
    """One action compiled: new values of what it writes, its step checks and its rows."""

    def __init__(self, system: System, action: Action) -> None:
        layout = system.layout
        places = [layout.index[name] for name in action.updates]
        self.written = [(layout.variables[place], layout.places[place]) for place in places]
        post = {each.name: action.updates.get(each.name, variable(each.name)) for each in layout.variables}
        checks = [(n, check.holds(action, post)) for n, check in enumerate(system.steps)]
        self.checks = [number for number, holds in checks if holds != TRUE]
        self.rows = [row for row, _ in action.rows]
        roots: list[Expr] = list(action.updates.values())
        roots += [holds for _, holds in checks if holds != TRUE]
        roots += [condition for _, condition in action.rows]
        self.program = Program(roots)
        self.name = action.name


class Expander:
    """Computes the steps of a system's actions."""

    def __init__(self, system: System) -> None:
        self.space = Space(system.layout)
        self._guards = Program([action.guard for action in system.actions])
        self._updates = [_Updates(system, action) for action in system.actions]

    def batches(self, keys: Words, columns: dict[str, Column]) -> Iterator[Batch]:
        """Every step from the states `keys`, whose values are `columns`, action by action."""
        for number, guard in enumerate(self._guards.run(columns)):
            sources = np.flatnonzero(np.broadcast_to(guard, keys.shape))
            if sources.size:
                yield self._apply(number, sources, keys, columns)

    def _apply(
        self, number: int, sources: npt.NDArray[np.intp], keys: Words, columns: dict[str, Column]
    ) -> Batch:
        updates = self._updates[number]
        needed = {*updates.program.inputs, *(each.name for each, _ in updates.written)}
        chosen = {name: columns[name][sources] for name in needed}
        values = updates.program.run(chosen)
        changes: list[tuple[int, Words]] = []
        for (each, (word, weight)), value in zip(updates.written, values, strict=False):
            _require_range(each, value, updates.name)
            difference = np.asarray(value - chosen[each.name]).astype(np.int64).view(np.uint64)
            changes.append((word, difference * np.uint64(weight)))
        checked = len(updates.written)
        counted = checked + len(updates.checks)
        broken = tuple(
            (check, ~np.broadcast_to(np.asarray(holds, dtype=np.bool_), sources.shape))
            for check, holds in zip(updates.checks, values[checked:counted], strict=True)
            if not np.all(holds)
        )
        taken = tuple(
            (row, int(np.count_nonzero(np.broadcast_to(condition, sources.shape))))
            for row, condition in zip(updates.rows, values[counted:], strict=True)
        )
        return Batch(number, sources, self.space.moved(keys[sources], changes), broken, taken)


def _require_range(each: Variable, value: Value, action: str) -> None:
    low, high = int(np.min(value)), int(np.max(value))
    if low < each.low or high > each.high:
        raise ModelError(f"{action} takes {each.name} to {low}..{high}, outside {each.low}..{each.high}")
