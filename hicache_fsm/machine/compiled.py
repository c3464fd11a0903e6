"""The hot path: a machine as a dense table of small integers, decided without allocating anything."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hicache_fsm.spec.types import Machine, Transition

Context = TypeVar("Context")
Facts = TypeVar("Facts")
Function = TypeVar("Function")


@dataclass(frozen=True, slots=True)
class Row:
    """A transition as bit masks over the machine's guards: enabled where `truth & reads == required`.

    `guards` numbers them in the order in which the row names them, which is the order of asking.
    """

    required: int
    forbidden: int
    reads: int
    guards: tuple[int, ...]
    dest: int
    transition: Transition


@dataclass(frozen=True, slots=True)
class Choice:
    """One guard of a cell's decision tree: where to go if it holds, and where if not."""

    guard: int
    bit: int
    yes: "Choice | Row | None"
    no: "Choice | Row | None"


class CompiledMachine:
    """A machine whose states, events and guards are numbers, in the order in which the spec declares them.

    Guard number i is bit `1 << i` of a truth mask.  Immutable, hence shared by all instances and threads.
    """

    __slots__ = (
        "_cells",
        "_choices",
        "_events",
        "event_ids",
        "events",
        "guard_ids",
        "guards",
        "initial",
        "machine",
        "state_ids",
        "states",
        "terminal",
    )

    def __init__(self, machine: Machine) -> None:
        """Compile a valid machine.  Raises KeyError for a name that it does not declare."""
        self.machine = machine
        self.states = tuple(machine.states)
        self.events = tuple(machine.events)
        self.guards = tuple(machine.guards)
        self.state_ids = {name: number for number, name in enumerate(self.states)}
        self.event_ids = {name: number for number, name in enumerate(self.events)}
        self.guard_ids = {name: number for number, name in enumerate(self.guards)}
        self.initial = self.state_ids[machine.initial]
        self.terminal = frozenset(self.state_ids[name] for name in machine.terminal)
        self._events = len(self.events)
        cells: list[list[Row]] = [[] for _ in range(len(self.states) * self._events)]
        for transition in machine.transitions:
            source, event = self.state_ids[transition.source], self.event_ids[transition.event]
            cells[source * self._events + event].append(self._row(transition))
        self._cells = tuple(tuple(rows) for rows in cells)
        self._choices = tuple(_choose(rows, 0, 0) for rows in self._cells)

    def decide(self, state: int, event: int, truth: int = 0) -> Row | None:
        """The row that `event` takes in `state` when exactly the guards in the mask `truth` hold.

        None if the event is illegal there or none of its rows is enabled (`explain_illegal` tells which).  Of
        rows that overlap, as only a mutated spec has them, the first in file order is taken.  State and event
        must be numbers of this machine: they are not checked.
        """
        choice = self._choices[state * self._events + event]
        while isinstance(choice, Choice):
            choice = choice.yes if truth & choice.bit else choice.no
        return choice

    def decide_lazy(
        self,
        state: int,
        event: int,
        guard_functions: Sequence[Callable[[Context, Facts], bool]],
        context: Context,
        facts: Facts,
    ) -> Row | None:
        """As `decide`, but each guard is a function, called once if the decision hangs on it, else never.

        `guard_functions` is in the order of the guards' numbers, see `bind`.  What a guard raises passes
        through.
        """
        choice = self._choices[state * self._events + event]
        while isinstance(choice, Choice):
            choice = choice.yes if guard_functions[choice.guard](context, facts) else choice.no
        return choice

    def bind(self, functions: Mapping[str, Function]) -> tuple[Function, ...]:
        """The functions in the order of the guards' numbers.  Raises ValueError naming all that lack one."""
        missing = [guard for guard in self.guards if guard not in functions]
        if missing:
            raise ValueError(f"{self.machine.name}: no function for {', '.join(missing)}")
        return tuple(functions[guard] for guard in self.guards)

    def mask(self, guards: Iterable[str]) -> int:
        """The truth mask in which exactly these guards hold.  Raises KeyError for an unknown guard."""
        mask = 0
        for guard in guards:
            mask |= 1 << self.guard_ids[guard]
        return mask

    def rows(self, state: int, event: int) -> tuple[Row, ...]:
        """Every row of the cell, in file order: what a search over a mutated spec branches on."""
        return self._cells[state * self._events + event]

    def reads(self, state: int, event: int) -> int:
        """The mask of the guards that the cell reads; no other bit of `truth` matters to `decide`."""
        mask = 0
        for row in self.rows(state, event):
            mask |= row.reads
        return mask

    def legal(self, state: int) -> tuple[int, ...]:
        """The events that have a row in `state`, whether or not its guards hold."""
        return tuple(event for event in range(self._events) if self.rows(state, event))

    def explain_illegal(self, state: int, event: int) -> str:
        """One line on why `decide` gave None: the event has no row there, or no row is enabled."""
        where = f'{self.machine.name}: "{self.events[event]}" in "{self.states[state]}"'
        rows = self.rows(state, event)
        if rows:
            wanted = " or ".join(" ".join(map(str, row.transition.guard)) for row in rows)
            return f"{where} is not enabled; it needs {wanted}"
        legal = ", ".join(self.events[number] for number in self.legal(state))
        return f"{where} is illegal; legal there: {legal or 'nothing, the state is terminal'}"

    def _row(self, transition: Transition) -> Row:
        required = self.mask(literal.guard for literal in transition.guard if literal.positive)
        forbidden = self.mask(literal.guard for literal in transition.guard if not literal.positive)
        guards = tuple(self.guard_ids[literal.guard] for literal in transition.guard)
        dest = self.state_ids[transition.dest]
        return Row(required, forbidden, required | forbidden, guards, dest, transition)


def _choose(rows: Sequence[Row], known: int, truth: int) -> Choice | Row | None:
    """Decide among `rows` when the guards in `known` hold as `truth` says; the first in order wins."""
    possible = [row for row in rows if truth & row.reads == row.required & known]
    if not possible:
        return None
    for guard in possible[0].guards:
        bit = 1 << guard
        if not known & bit:
            yes = _choose(possible, known | bit, truth | bit)
            no = _choose(possible, known | bit, truth)
            return Choice(guard, bit, yes, no)
    return possible[0]
