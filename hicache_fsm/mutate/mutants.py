"""Every mutant of a spec: one row, literal, effect, destination or constant removed or altered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

from hicache_fsm.spec import Constants, Literal, Machine, Spec, Transition, set_constant
from hicache_fsm.spec.types import Constant

CHOICES = {
    "scope": ("rid", "attempt"),
    "pacing": ("pass", "clock"),
    "resets_under": ("queue", "pause", "idle"),
}
"""The constants that are words, with all that they may be."""

SHARE_STEP = 0.25
"""By how much a share of the pool is altered."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of the spec: `place` is the machine or the profile, `change` says what was done to it.

    `spec` is the whole spec after the change, with nothing checked.
    """

    place: str
    change: str
    spec: Spec

    @property
    def name(self) -> str:
        """What the mutant is called, in reports and in spec/mutation/equivalent-mutants.toml."""
        return f"{self.place}: {self.change}"


def mutants(spec: Spec) -> Iterator[Mutant]:
    """All mutants, machine by machine and profile by profile, in the spec's order."""
    for machine in spec.machines.values():
        for change, rows in machine_changes(machine):
            changed = replace(machine, transitions=tuple(rows))
            yield Mutant(
                machine.name, change, replace(spec, machines={**spec.machines, machine.name: changed})
            )
    for profile in spec.profiles.values():
        for name, value in constant_changes(profile.constants):
            yield Mutant(
                profile.name, f"set {name} to {value}", set_constant(spec, profile.name, **{name: value})
            )


def machine_changes(machine: Machine) -> Iterator[tuple[str, list[Transition]]]:
    """Each change of a machine in words, and the rows after it.

    Rows leave one source at a time; literals, effects and destinations change in a whole entry of the file.
    """
    rows = machine.transitions
    for row in rows:
        yield f"drop row {_shown([row])}", [other for other in rows if other != row]
    for entry in entries(rows):
        shown = _shown(entry)
        for literal in entry[0].guard:
            rest = tuple(each for each in entry[0].guard if each != literal)
            turned = tuple(
                Literal(each.guard, not each.positive) if each == literal else each for each in entry[0].guard
            )
            yield f"drop {literal} of {shown}", _with(rows, entry, guard=rest)
            yield f"negate {literal} of {shown}", _with(rows, entry, guard=turned)
        for place, effect in enumerate(entry[0].effects):
            left = (*entry[0].effects[:place], *entry[0].effects[place + 1 :])
            yield f"drop effect {effect} of {shown}", _with(rows, entry, effects=left)
        other = _other_state(machine, entry)
        yield f"lead to {other} instead: {shown}", _with(rows, entry, dest=other)


def constant_changes(constants: Constants) -> Iterator[tuple[str, Constant]]:
    """Each constant with another value: flags and words turned, numbers one more and one less."""
    for field in fields(Constants):
        name, value = field.name, getattr(constants, field.name)
        match value:
            case bool():
                yield name, not value
            case int():
                yield from ((name, other) for other in (value - 1, value + 1) if other >= 0)
            case float():
                yield from (
                    (name, value + step) for step in (-SHARE_STEP, SHARE_STEP) if 0 <= value + step <= 1
                )
            case str():
                yield from ((name, other) for other in CHOICES[name] if other != value)


def entries(rows: Sequence[Transition]) -> list[list[Transition]]:
    """The rows of one entry of the file together: they differ in their source only."""
    found: dict[tuple[object, ...], list[Transition]] = {}
    for row in rows:
        dest = "=" if row.dest == row.source else row.dest
        found.setdefault((row.event, row.guard, row.effects, dest, row.why), []).append(row)
    return list(found.values())


def _with(
    rows: Sequence[Transition],
    entry: Sequence[Transition],
    *,
    guard: tuple[Literal, ...] | None = None,
    effects: tuple[str, ...] | None = None,
    dest: str | None = None,
) -> list[Transition]:
    return [
        row
        if row not in entry
        else replace(
            row,
            guard=row.guard if guard is None else guard,
            effects=row.effects if effects is None else effects,
            dest=row.dest if dest is None else dest,
        )
        for row in rows
    ]


def _other_state(machine: Machine, entry: Sequence[Transition]) -> str:
    """The state declared after the entry's destination, round to the first."""
    states = list(machine.states)
    return states[(states.index(entry[0].dest) + 1) % len(states)]


def _shown(entry: Sequence[Transition]) -> str:
    first = entry[0]
    guard = f" [{', '.join(map(str, first.guard))}]" if first.guard else ""
    return f"{first.event}{guard} from {', '.join(row.source for row in entry)}"
