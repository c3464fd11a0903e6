"""The refusal of an event that its machine does not allow."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Past:
    """One remembered step: the pass, the event, and the state it led to."""

    pass_: int
    event: str
    state: str

    def __str__(self) -> str:
        return f"pass {self.pass_}  {self.event} -> {self.state}"


class IllegalTransition(Exception):  # noqa: N818 - the design's name
    """An event that its machine does not allow in this state; nothing has changed.

    `subject` is the attempt, operation, node or page; `history` its newest steps, oldest first.
    """

    def __init__(
        self, machine: str, event: str, state: str, subject: str, reason: str, history: Sequence[Past] = ()
    ) -> None:
        super().__init__(reason)
        self.machine = machine
        self.event = event
        self.state = state
        self.subject = subject
        self.reason = reason
        self.history = tuple(history)

    def __str__(self) -> str:
        return "\n  ".join([f"{self.subject}: {self.reason}", *map(str, self.history)])
