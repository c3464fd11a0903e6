"""The first difference between two searches of what should be one system."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from hicache_fsm.conform.graph import Edge, Graph, Path, State

SHOWN = 4
"""Steps of a difference that are shown for each side."""


@dataclass(frozen=True, slots=True)
class OnlyStep:
    """A step that one side has and the other has not: its label, and the (old, new) values of what it changes."""

    label: str
    changed: Mapping[str, tuple[Hashable, Hashable]]

    def __str__(self) -> str:
        changes = ", ".join(f"{name}: {old} → {new}" for name, (old, new) in self.changed.items())
        return f"{self.label} ({changes})"


@dataclass(frozen=True, slots=True)
class Difference:
    """Two sides agree on every shorter path; at the end of these two paths, which reach one state, they part."""

    sides: tuple[str, str]
    state: Mapping[str, Hashable]
    paths: tuple[Path, Path]
    only: tuple[tuple[OnlyStep, ...], tuple[OnlyStep, ...]]

    def __str__(self) -> str:
        lines = [
            f"{self.sides[0]} and {self.sides[1]} part at a state {len(self.paths[0].steps)} steps deep:"
        ]
        lines.append("  " + ", ".join(f"{name}={value}" for name, value in self.state.items()))
        for side, path, only in zip(self.sides, self.paths, self.only, strict=True):
            lines.append(f"  {side}: reached by {path}")
            lines += [f"    only here: {step}" for step in only] or ["    no step of its own"]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The difference as plain values."""
        return {
            "state": dict(self.state),
            "sides": {
                side: {"path": list(path.steps), "only": [str(step) for step in only]}
                for side, path, only in zip(self.sides, self.paths, self.only, strict=True)
            },
        }


def difference(sides: tuple[str, str], one: Graph, other: Graph) -> Difference | None:
    """The first state, by its depth, whose labelled steps differ; None if both graphs are equal."""
    if one.names != other.names:
        raise ValueError(f"{sides[0]} observes {one.names}, {sides[1]} {other.names}")
    if one.initial != other.initial:
        return _part(sides, one, other, one.initial, ((), ()))
    for state in sorted(one.edges, key=one.depths.__getitem__):
        if state in other.edges and one.edges[state] != other.edges[state]:
            only = (
                sorted(one.edges[state] - other.edges[state], key=repr),
                sorted(other.edges[state] - one.edges[state], key=repr),
            )
            return _part(sides, one, other, state, (tuple(only[0]), tuple(only[1])))
    return None


def _part(
    sides: tuple[str, str],
    one: Graph,
    other: Graph,
    state: State,
    only: tuple[tuple[Edge, ...], tuple[Edge, ...]],
) -> Difference:
    shown = one.show(state)
    if one.initial != other.initial:
        changed = _changed(one.names, one.initial, other.initial)
        return Difference(
            sides, shown, (Path(()), Path(())), ((), (OnlyStep("another initial state", changed),))
        )
    paths = one.path(state), other.path(state)
    left, right = (
        tuple(OnlyStep(label, _changed(one.names, state, reached)) for label, reached in edges[:SHOWN])
        for edges in only
    )
    return Difference(sides, shown, paths, (left, right))


def _changed(names: tuple[str, ...], before: State, after: State) -> dict[str, tuple[Hashable, Hashable]]:
    return {name: (old, new) for name, old, new in zip(names, before, after, strict=True) if old != new}
