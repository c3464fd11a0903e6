"""What a run reached: states, moves and exits, as the target showed them, against the table of spec/prefetch.toml."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from hicache_fsm.spec import Machine
from hicache_fsm.suite.protocol import Answer, Event, Observed, Reply

EXITS: Final = frozenset(
    {"admit", "finish", "abort", "abandon", "retract", "preempt", "flush", "detach", "pause", "cut", "expire"}
)
"""The words by which a request leaves where it was, whatever it holds."""

Move = tuple[str, str]


@dataclass(slots=True)
class Coverage:
    """Counts; `moves` are (state before, state after) of one attempt over one event, `exits` by word and reason."""

    runs: int = 0
    events: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    moves: Counter[Move] = field(default_factory=Counter)
    exits: Counter[str] = field(default_factory=Counter)

    def see(self, event: Event, reply: Reply, before: Observed, after: Observed) -> None:
        """One event, and what the target showed before and after it."""
        self.answers[reply.answer] += 1
        if reply.answer in (Answer.DONE, Answer.SEEN):
            self.events[event.name] += 1
            if event.name in EXITS:
                self.exits[exit_of(event)] += 1
        for rid, view in after.requests.items():
            self.states[view.state] += 1
            was = before.requests.get(rid)
            if was is not None and was.attempt == view.attempt and was.state != "absent":
                self.moves[was.state, view.state] += 1

    def add(self, other: "Coverage") -> None:
        """Count in what another run reached."""
        self.runs += other.runs
        for name in ("events", "answers", "states", "moves", "exits"):
            getattr(self, name).update(getattr(other, name))

    def reached(self, machine: Machine) -> frozenset[Move]:
        """The changes of state in the machine's table that were seen."""
        return changes(machine) & {(normal(source), normal(dest)) for source, dest in self.moves}

    def missing(self, machine: Machine) -> list[Move]:
        """Those that were not, in the table's order."""
        seen = self.reached(machine)
        return [move for move in ordered_changes(machine) if move not in seen]

    def as_json(self, machine: Machine) -> dict[str, Any]:
        """Everything, for machines."""
        return {
            "runs": self.runs,
            "events": dict(self.events.most_common()),
            "answers": dict(self.answers.most_common()),
            "states": dict(self.states.most_common()),
            "exits": dict(self.exits.most_common()),
            "changes": len(changes(machine)),
            "reached": len(self.reached(machine)),
            "missing": [" -> ".join(move) for move in self.missing(machine)],
        }


def normal(state: str) -> str:
    """The state in the table's words: who runs or has finished was scheduled."""
    return "scheduled" if state in ("running", "finished") else state


def exit_of(event: Event) -> str:
    """The exit that an event is, with its reason."""
    why = event.facts.get("why", "")
    return f"{event.name} {why}".rstrip()


def last_exit(events: Iterable[Event]) -> str:
    """The exit that a sequence took last, `-` if it took none."""
    return next((exit_of(each) for each in reversed(list(events)) if each.name in EXITS), "-")


def ordered_changes(machine: Machine) -> list[Move]:
    """The table's (source, dest) pairs that differ, once each, in file order."""
    pairs = ((row.source, row.dest) for row in machine.transitions if row.source != row.dest)
    return list(dict.fromkeys(pairs))


def changes(machine: Machine) -> frozenset[Move]:
    """The same as a set."""
    return frozenset(ordered_changes(machine))
