"""Rows of the spec's tables as guarded steps on symbolic values.

A system says what a machine's names mean (`Meaning`); everything else comes from the rows.  Where two rows
can be enabled at once, because the environment chooses or the spec was mutated, each is a step of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hicache_fsm.model.expr import FALSE, TRUE, Expr, all_of, any_of, lift, where
from hicache_fsm.model.layout import ModelError
from hicache_fsm.model.system import Row
from hicache_fsm.spec.types import Literal, Machine, Transition

Changes = Mapping[str, Expr | int]


@dataclass(frozen=True, slots=True)
class Path:
    """Symbolic values after some steps, and the condition for taking them, both in terms of the old state."""

    values: Mapping[str, Expr]
    condition: Expr = TRUE
    rows: tuple[tuple[Row, Expr], ...] = ()

    def assuming(self, condition: Expr) -> "Path":
        """The same path, taken only where `condition` holds too."""
        return replace(self, condition=self.condition & condition)


@dataclass(frozen=True, slots=True)
class View:
    """A path as one instance sees it: its own variables by their short names, then everyone's.

    `parameters` are what the environment chose for this step.
    """

    path: Path
    instance: str
    parameters: Mapping[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Expr:
        values = self.path.values
        own = f"{self.instance}.{name}"
        return values[own] if own in values else values[name]

    def assuming(self, condition: Expr) -> "View":
        """This view, where `condition` holds too."""
        return replace(self, path=self.path.assuming(condition))

    def change(self, changes: Changes) -> "View":
        """This view after the changes."""
        values = dict(self.path.values)
        for name, value in changes.items():
            own = f"{self.instance}.{name}"
            if own not in values and name not in values:
                raise ModelError(f"{self.instance} has no variable {name}")
            values[own if own in values else name] = lift(value)
        return replace(self, path=replace(self.path, values=values))


@dataclass(frozen=True, slots=True)
class Free:
    """A guard that the environment decides: where it may hold, and where it may fail."""

    may_hold: Expr
    may_fail: Expr


@dataclass(frozen=True, slots=True)
class Fire:
    """An effect that is an event of another machine; where no row decides it, nothing happens."""

    machine: str
    event: str


Step = Callable[[View], Changes] | Fire


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a machine's names mean in a system.

    `at` tells whether an instance is in a state, `enter` what changes as it goes from one state to another.
    """

    machine: Machine
    at: Callable[[View, str], Expr]
    enter: Callable[[View, str, str], Changes]
    guards: Mapping[str, Callable[[View], Expr | Free]]
    effects: Mapping[str, Sequence[Step]]

    def literal(self, view: View, literal: Literal) -> Expr:
        """Where the literal may be true."""
        try:
            guard = self.guards[literal.guard](view)
        except KeyError:
            raise ModelError(f"guard {literal.guard} of {self.machine.name} has no meaning here") from None
        if isinstance(guard, Free):
            return guard.may_hold if literal.positive else guard.may_fail
        return guard if literal.positive else ~guard

    def allows(self, view: View, row: Transition) -> Expr:
        """Where every literal of the row's guard may be true."""
        return all_of(self.literal(view, literal) for literal in row.guard)

    def enabled(self, view: View, row: Transition) -> Expr:
        """Where the row may be taken."""
        return self.at(view, row.source) & self.allows(view, row)

    def is_free(self, view: View, name: str) -> bool:
        """Whether the environment decides the guard."""
        return isinstance(self.guards[name](view), Free)


@dataclass(frozen=True, slots=True)
class Tables:
    """A system's machines with their meanings; `skips` tells what a profile leaves out of a row."""

    meanings: Mapping[str, Meaning]
    skips: Callable[[str, Transition], bool] = lambda effect, row: False

    def take(self, view: View, machine: str, rows: Sequence[Transition], within: Expr = TRUE) -> list[View]:
        """The instance's views after one of `rows`, which differ in their source only, where `within` holds.

        One view, or more where an effect has alternatives; each assumes that one of the rows is enabled.
        """
        meaning = self.meanings[machine]
        first = rows[0]
        allowed = within & meaning.allows(view, first)
        sources = [meaning.at(view, row.source) for row in rows]
        enabled = allowed & any_of(sources)
        if enabled == FALSE:
            return []
        marks = tuple(
            (Row(machine, row.row, label(row, view.instance)), allowed & source)
            for row, source in zip(rows, sources, strict=True)
        )
        taken = replace(view.path.assuming(enabled), rows=(*view.path.rows, *marks))
        views = [replace(view, path=taken)]
        for effect in first.effects:
            if self.skips(effect, first):
                continue
            if effect not in meaning.effects:
                raise ModelError(f"effect {effect} of {machine} has no meaning here")
            for step in meaning.effects[effect]:
                views = [after for before in views for after in self._step(before, step, enabled)]
        return [after.change(meaning.enter(after, first.source, first.dest)) for after in views]

    def _step(self, view: View, step: Step, enabled: Expr) -> list[View]:
        if isinstance(step, Fire):
            return self.fire(view, step.machine, step.event, enabled)
        return [view.change(step(view))]

    def fire(
        self,
        view: View,
        machine: str,
        event: str,
        within: Expr = TRUE,
        sources: Callable[[str], bool] = lambda source: source != "orphan",
        also: Callable[[View, str], Expr] = lambda view, source: TRUE,
    ) -> list[View]:
        """The views after an event that no row need decide: one, or more where rows overlap.

        `within` is where the event happens at all, `also` a further condition on the rows from a state.
        """
        meaning = self.meanings[machine]
        rows = [
            (row, enabled)
            for row in meaning.machine.transitions
            if row.event == event
            and sources(row.source)
            and (enabled := meaning.enabled(view, row) & also(view, row.source)) != FALSE
        ]
        if not rows:
            return [view]
        somewhere = any_of(enabled for _, enabled in rows)
        results: list[View] = []
        for number, layer in enumerate(_layers(meaning, view, rows)):
            branches = [
                (enabled, self.take(view, machine, [row], within & also(view, row.source)))
                for row, enabled in layer
            ]
            nothing = ~somewhere if number == 0 else FALSE
            if all(len(after) == 1 for _, after in branches):
                happens = any_of(enabled for enabled, _ in branches) | nothing
                merged = _merge(view, [(enabled, after[0]) for enabled, after in branches])
                results.append(merged.assuming(happens))
            else:
                results += [after.assuming(enabled) for enabled, views in branches for after in views]
                results.append(view.assuming(nothing))
        return [result for result in results if result.path.condition != FALSE]


def label(row: Transition, instance: str) -> str:
    """The row in the spec's words: what its event does to whom, and on which guard."""
    guard = f" [{', '.join(map(str, row.guard))}]" if row.guard else ""
    return f"{row.event} {instance}{guard}"


def groups(rows: Iterable[Transition]) -> list[list[Transition]]:
    """Rows that differ in their source only, together."""
    found: dict[tuple[object, ...], list[Transition]] = {}
    for row in rows:
        key = (row.event, row.guard, row.effects, row.dest)
        found.setdefault(key, []).append(row)
    return list(found.values())


def _layers(
    meaning: Meaning, view: View, rows: Sequence[tuple[Transition, Expr]]
) -> list[list[tuple[Transition, Expr]]]:
    """The rows in as few lists as possible such that at most one row of each list is enabled."""
    names = {literal.guard for row, _ in rows for literal in row.guard}
    free = {name for name in names if meaning.is_free(view, name)}
    layers: list[list[tuple[Transition, Expr]]] = []
    for row, enabled in rows:
        for layer in layers:
            if all(_exclude(row, other, free) for other, _ in layer):
                layer.append((row, enabled))
                break
        else:
            layers.append([(row, enabled)])
    return layers


def _exclude(one: Transition, other: Transition, free: set[str]) -> bool:
    if one.source != other.source:
        return True
    signs = {literal.guard: literal.positive for literal in one.guard if literal.guard not in free}
    return any(signs.get(literal.guard) is (not literal.positive) for literal in other.guard)


def _merge(view: View, branches: Sequence[tuple[Expr, View]]) -> View:
    """One view out of branches of which at most one is taken: the old values where none is."""
    values = dict(view.path.values)
    rows = view.path.rows
    for enabled, after in branches:
        for name, value in after.path.values.items():
            if value is not view.path.values[name]:
                values[name] = where(enabled, value, values[name])
        rows = (*rows, *after.path.rows[len(view.path.rows) :])
    return replace(view, path=Path(values, view.path.condition, rows))
