"""The books: live operations, host pages in use, tokens pinned."""

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.runtime.attempt import Attempt, Operation
from hicache_fsm.runtime.errors import IllegalTransition
from hicache_fsm.spec import Machine


class Ledger:
    """What is in use.

    `occupied_pages` are the host pages of operations, orphans included, and of holds; `pinned_tokens` those
    that all holders pin together, per holder and not per distinct node; `last_op` numbers questions.
    """

    __slots__ = ("_ended", "_ids", "last_op", "occupied_pages", "operations", "pinned_tokens", "table")

    def __init__(self, machine: Machine) -> None:
        self.table = CompiledMachine(machine)
        self.operations: dict[int, Operation] = {}
        self.last_op = 0
        self.occupied_pages = 0
        self.pinned_tokens = 0
        self._ids = self.table.event_ids
        self._ended = self.table.terminal

    def new_operation(self, attempt: Attempt) -> Operation:
        """The operation of a question that has just gone out."""
        self.last_op += 1
        op = Operation(self.last_op, attempt, self.table.initial)
        self.operations[op.number] = op
        return op

    def advance(self, op: Operation, event: str) -> None:
        """Step the operation's own machine. Raises IllegalTransition, which only a changed spec can cause."""
        row = self.table.decide(op.state, self._ids[event])
        if row is None:
            reason = self.table.explain_illegal(op.state, self._ids[event])
            raise IllegalTransition(
                "operation", event, self.table.states[op.state], f"operation {op.number}", reason
            )
        op.state = row.dest
        if op.state in self._ended:
            del self.operations[op.number]

    def end(self, op: Operation) -> None:
        """The operation has answered for the last time."""
        self.advance(op, "end")

    def terminate(self, op: Operation) -> None:
        """The operation goes on without its attempt, unless it has no I/O left."""
        self.advance(op, "terminate")

    def own(self, op: Operation, pages: int) -> None:
        """The operation takes host pages, or gives them back where negative."""
        op.pages += pages
        self.occupied_pages += pages

    def release(self, pages: int) -> None:
        """Host pages of a hold go back."""
        self.occupied_pages -= pages
