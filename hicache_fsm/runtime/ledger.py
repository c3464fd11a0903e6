"""The books: live operations, host pages in use, tokens pinned."""

from typing import Final

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.runtime.attempt import Attempt, Operation
from hicache_fsm.runtime.errors import IllegalTransition
from hicache_fsm.spec import Machine

EVENTS: Final = ("take_pages", "hold_answer", "end", "terminate")


class Ledger:
    """What is in use.

    `occupied_pages` are the host pages of operations, orphans included, and of holds; `pinned_tokens` those
    that all holders pin together, per holder and not per distinct node; `last_op` numbers questions.
    """

    __slots__ = (
        "_end",
        "_ended",
        "_hold_answer",
        "_initial",
        "_take_pages",
        "_terminate",
        "last_op",
        "occupied_pages",
        "operations",
        "pinned_tokens",
        "table",
    )

    def __init__(self, machine: Machine) -> None:
        self.table = CompiledMachine(machine)
        self.operations: dict[int, Operation] = {}
        self.last_op = 0
        self.occupied_pages = 0
        self.pinned_tokens = 0
        self._take_pages, self._hold_answer, self._end, self._terminate = map(self._dests, EVENTS)
        self._initial = self.table.initial
        self._ended = self.table.terminal

    def new_operation(self, attempt: Attempt) -> Operation:
        """The operation of a question that has just gone out."""
        self.last_op = number = self.last_op + 1
        self.operations[number] = op = Operation(number, attempt, self._initial)
        return op

    def take(self, op: Operation, pages: int) -> None:
        """The operation takes so many host pages.  Raises IllegalTransition, as all steps of an operation."""
        dest = self._take_pages[op.state]
        if dest < 0:
            raise self._illegal(op, self._take_pages)
        op.state = dest
        op.pages += pages
        self.occupied_pages += pages

    def park(self, op: Operation) -> None:
        """The operation's answer is kept until there is room."""
        self._advance(op, self._hold_answer)

    def end(self, op: Operation) -> None:
        """The operation has answered for the last time."""
        self._advance(op, self._end)

    def free(self, op: Operation) -> None:
        """The operation has answered for the last time, and all its host pages go back."""
        self._advance(op, self._end)
        self.occupied_pages -= op.pages
        op.pages = 0

    def terminate(self, op: Operation) -> None:
        """The operation goes on without its attempt, unless it has no I/O left."""
        self._advance(op, self._terminate)

    def _advance(self, op: Operation, dests: tuple[int, ...]) -> None:
        dest = dests[op.state]
        if dest < 0:
            raise self._illegal(op, dests)
        op.state = dest
        if dest in self._ended:
            del self.operations[op.number]

    def _dests(self, event: str) -> tuple[int, ...]:
        """Where the event leads, by the state it is taken in; -1 where it is illegal."""
        rows = (
            self.table.decide(state, self.table.event_ids[event]) for state in range(len(self.table.states))
        )
        return tuple(-1 if row is None else row.dest for row in rows)

    def _illegal(self, op: Operation, dests: tuple[int, ...]) -> IllegalTransition:
        """What only a changed spec can cause."""
        tables = (self._take_pages, self._hold_answer, self._end, self._terminate)
        event = EVENTS[next(number for number, table in enumerate(tables) if table is dests)]
        reason = self.table.explain_illegal(op.state, self.table.event_ids[event])
        state = self.table.states[op.state]
        return IllegalTransition("operation", event, state, f"operation {op.number}", reason)
