"""A machine on the `transitions` library: slower, with callbacks and introspection, to compare with."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from transitions import EventData
from transitions import Machine as Engine

from hicache_fsm.spec.types import Machine, Transition


@dataclass(slots=True)
class Subject:
    """One instance: its state, the guards that hold for the current event, and what was done to it."""

    state: str
    holding: Collection[str] = ()
    effects: list[str] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def perform(self, effect: str) -> None:
        """Do an effect: here, record it.  If it raises, the subject stays in its old state."""
        self.effects.append(effect)


class ReferenceMachine:
    """One `transitions` machine for any number of subjects, which it neither registers nor decorates.

    `engine` is the library's own machine, open to further callbacks; each receives an `EventData`.
    """

    __slots__ = ("engine", "machine")

    def __init__(self, machine: Machine) -> None:
        """Build a valid machine.  Raises ValueError for a row with a state that it does not declare."""
        self.machine = machine
        self.engine = Engine(
            model=None,
            states=list(machine.states),
            initial=machine.initial,
            auto_transitions=False,
            send_event=True,
            name=machine.name,
        )
        for row in machine.transitions:
            self.engine.add_transition(
                row.event,
                row.source,
                row.dest,
                conditions=[_holds(literal.guard) for literal in row.guard if literal.positive],
                unless=[_holds(literal.guard) for literal in row.guard if not literal.positive],
                # Before the change of state, so that an effect that raises prevents it.
                before=[_perform(row)],
            )

    def subject(self, state: str | None = None) -> Subject:
        """A new subject in `state`, or in the initial one."""
        return Subject(state or self.machine.initial)

    def fire(self, subject: Subject, event: str, holding: Collection[str] = ()) -> bool:
        """Whether `event` moved the subject when exactly the guards in `holding` hold.

        Raises KeyError for an event that no row names, `transitions.MachineError` if it is illegal in the
        subject's state, and whatever an effect raises.
        """
        subject.holding = holding
        return bool(self.engine.events[event].trigger(subject))

    def legal(self, state: str) -> tuple[str, ...]:
        """The events that have a row in `state`, in the order in which the spec declares them."""
        triggers = set(self.engine.get_triggers(state))
        return tuple(event for event in self.machine.events if event in triggers)


def _holds(guard: str) -> Callable[[EventData], bool]:
    def condition(event: EventData) -> bool:
        subject = event.model
        assert isinstance(subject, Subject)
        return guard in subject.holding

    condition.__name__ = guard
    return condition


def _perform(row: Transition) -> Callable[[EventData], None]:
    def effects(event: EventData) -> None:
        subject = event.model
        assert isinstance(subject, Subject)
        for effect in row.effects:
            subject.perform(effect)
        subject.rows.append(row.row)

    return effects
