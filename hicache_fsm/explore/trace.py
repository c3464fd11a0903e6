"""Shortest paths to states, rebuilt backwards over the levels of a search: no parent is stored."""

from collections.abc import Sequence

from hicache_fsm.explore.engine import Engine, Packed, Target
from hicache_fsm.explore.result import Trace, TraceStep
from hicache_fsm.model.expr import evaluate
from hicache_fsm.model.system import System


def traces(system: System, engine: Engine, targets: Sequence[Target]) -> dict[str, Trace]:
    """A shortest trace for each target, by invariant."""
    paths: dict[str, list[tuple[Packed, int]]] = {target.invariant: [] for target in targets}
    at = {target.invariant: target.state for target in targets}
    depth_of = {target.invariant: target.depth for target in targets}
    for depth in range(max(depth_of.values(), default=0), 0, -1):
        names = [name for name, deepest in depth_of.items() if deepest >= depth]
        parents = engine.parents(depth - 1, {at[name] for name in names})
        for name in names:
            source, action = parents[at[name]]
            paths[name].append((source, action))
            at[name] = source
    return {
        target.invariant: _trace(system, target, _walked(system, engine, target, paths[target.invariant]))
        for target in targets
    }


def _walked(
    system: System, engine: Engine, target: Target, backwards: list[tuple[Packed, int]]
) -> list[tuple[Packed, int]]:
    """The path forwards, from state to state as they are, not as others stand for them."""
    path = backwards[::-1]
    at = system.layout.pack(system.initial)
    walked: list[tuple[Packed, int]] = []
    for place, (source, action) in enumerate(path):
        wanted = path[place + 1][0] if place + 1 < len(path) else target.state
        if source != at:
            action = _leading(system, engine, at, wanted)
        walked.append((at, action))
        at = _after(system, at, action)
    return walked


def _leading(system: System, engine: Engine, at: Packed, wanted: Packed) -> int:
    """The first action from a state to one that `wanted` stands for."""
    state = system.layout.unpack(at)
    for number, action in enumerate(system.actions):
        if evaluate(action.guard, state) and engine.canonical(_after(system, at, number)) == wanted:
            return number
    raise AssertionError("what stands for a state steps as it does")


def _after(system: System, at: Packed, number: int) -> Packed:
    state = system.layout.unpack(at)
    updates = system.actions[number].updates
    return system.layout.pack({**state, **{name: evaluate(value, state) for name, value in updates.items()}})


def _trace(system: System, target: Target, path: list[tuple[Packed, int]]) -> Trace:
    if target.last is not None:
        path = [*path, (target.state, target.last)]
    steps = [step_of(system, system.layout.unpack(words), action) for words, action in path]
    where = "the state at the end" if target.last is None else "the last step"
    return Trace(target.about or f"{where} breaks {target.invariant}", tuple(steps))


def step_of(system: System, before: dict[str, int], number: int) -> TraceStep:
    """The step that an action of the system, by its number, takes from one state."""
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
    return TraceStep(name, rows, changed, number)
