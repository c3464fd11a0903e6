"""A machine to embed: its events checked, counted and remembered, at the cost of some table look-ups."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from hicache_fsm.machine.compiled import CompiledMachine
from hicache_fsm.machine.fork import Fork, grow
from hicache_fsm.machine.illegal import IllegalTransition, Past
from hicache_fsm.spec.types import Machine, Transition

HISTORY: Final = 16
"""How many steps of a subject a refusal tells."""


class Stateful(Protocol):
    """What a machine moves: anything whose `state` is the name of one."""

    state: str


Subject = TypeVar("Subject", bound=Stateful)
Moved = TypeVar("Moved", bound=Stateful, contravariant=True)
Guard = Callable[[Subject, Any], bool]
Effect = Callable[[Subject, Any], object]


class Trigger(Protocol[Moved]):
    """One event of a machine, to be taken to a subject with the event's facts: the row that it took."""

    def __call__(self, subject: Moved, facts: Any = None, /) -> Transition: ...


class Entry(NamedTuple, Generic[Subject]):
    """One remembered transition: the pass that it bears, who took it, and the row."""

    pass_: int
    subject: Subject
    row: Transition

    def __str__(self) -> str:
        return f"pass {self.pass_}  {self.subject}  {self.row.source} --{self.row.event}--> {self.row.dest}"


@dataclass(slots=True, eq=False)
class Taken:
    """A row, ready to be taken, and how often it was."""

    row: Transition
    dest: str
    effects: tuple[Effect[Any], ...]
    times: int = 0


class Tracer(Generic[Subject]):
    """Moves any number of subjects, which it does not register, by one machine of the spec.

    `now` is the pass, or whatever else its owner sets it to, that a transition is remembered under; `refused`
    counts illegal events by (state, event).  All of it belongs to one thread.
    """

    __slots__ = ("_guards", "_ring", "_rows", "now", "refused", "table")

    def __init__(
        self,
        machine: Machine,
        guards: Mapping[str, Guard[Subject] | bool],
        effects: Mapping[str, Effect[Subject]] | None = None,
        *,
        entries: int = 4096,
    ) -> None:
        """Guards and effects are functions of the subject and the facts, by name.

        Every guard needs one, or a bool that settles it, and is asked only if the decision hangs on it; effects
        without one are left to the caller.  The newest `entries` transitions are remembered, and keep their
        subjects alive.  An effect must not take an event to its own subject.  Raises ValueError for a guard
        without a function, or a function for an effect that the machine lacks.
        """
        effects = {} if effects is None else effects
        if unknown := sorted(set(effects) - set(machine.effects)):
            raise ValueError(f"{machine.name}: has no effect {', '.join(unknown)}")
        self.table = table = CompiledMachine(machine)
        self.now = 0
        self.refused: Counter[tuple[str, str]] = Counter()
        self._rows = {
            id(row): Taken(row, row.dest, tuple(effects[name] for name in row.effects if name in effects))
            for row in machine.transitions
        }
        self._guards = table.bind(guards)
        self._ring: deque[tuple[int, Subject, Taken]] = deque(maxlen=entries)

    def trigger(self, event: str) -> Trigger[Subject]:
        """The function that takes this event to a subject, to be made once.  Raises KeyError for an unknown event.

        It returns the row that was taken, after its effects, the change of state and the books.  It raises
        IllegalTransition if the event is illegal or not enabled, what a guard or an effect raises, and KeyError
        for a state that the machine lacks; the state is then the old one.  What earlier effects of the same row
        did is theirs to undo.
        """
        number = self.table.event_ids[event]
        ways = dict(zip(self.table.states, self._trees(number), strict=True))
        remember = self._ring.append

        def fire(subject: Subject, facts: Any = None) -> Transition:
            way = ways[subject.state]
            while type(way) is Fork:
                holds = way.holds  # CPython calls a local faster than a slot
                way = way.yes if holds(subject, facts) else way.no
            taken: Taken | None = way  # type: ignore[assignment] # a Fork was excluded by the loop
            if taken is None:
                raise self._refusal(subject, number)
            if taken.effects:
                for effect in taken.effects:
                    effect(subject, facts)
            subject.state = taken.dest
            taken.times += 1
            remember((self.now, subject, taken))
            return taken.row

        fire.__name__ = event
        return fire

    def counts(self) -> dict[Transition, int]:
        """Every row of the machine in file order, and how often it was taken."""
        return {taken.row: taken.times for taken in self._rows.values()}

    def trace(self, subject: Subject | None = None) -> Iterator[Entry[Subject]]:
        """The transitions remembered by now, oldest first: of all subjects, or of this one.  Format one with `str`."""
        ring = tuple(self._ring)
        return (Entry(now, one, taken.row) for now, one, taken in ring if subject is None or one is subject)

    def _trees(self, event: int) -> Iterator[Fork[Guard[Subject], Taken | None] | Taken | None]:
        """The decision of the event in each state."""
        table, bound = self.table, self._guards

        def leaf(state: int, truth: int) -> Taken | None:
            row = table.decide(state, event, truth)
            return None if row is None else self._rows[id(row.transition)]

        for state in range(len(table.states)):
            reads = table.reads(state, event)
            asked = [(1 << number, holds) for number, holds in enumerate(bound) if reads & 1 << number]
            yield grow(asked, partial(leaf, state))

    def _refusal(self, subject: Subject, event: int) -> IllegalTransition:
        table, state = self.table, subject.state
        name = table.events[event]
        self.refused[state, name] += 1
        reason = table.explain_illegal(table.state_ids[state], event)
        past = [Past(one.pass_, one.row.event, one.row.dest) for one in self.trace(subject)]
        return IllegalTransition(table.machine.name, name, state, str(subject), reason, past[-HISTORY:])
