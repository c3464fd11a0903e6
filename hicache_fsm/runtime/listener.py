"""Whoever wants to hear what a lifecycle does, beside its log and its monitor."""

from hicache_fsm.machine import Row
from hicache_fsm.runtime.attempt import Attempt, Node, Operation, PinPlan
from hicache_fsm.runtime.guards import Moment


class Listener:
    """Hears what happened, in order, on the lifecycle's thread; a subclass overrides what it needs.

    It must neither raise nor call the lifecycle nor change what it is shown. `now` is the scheduling pass.
    """

    __slots__ = ()

    def queued(self, now: int, attempt: Attempt, again: str) -> None:
        """An attempt joined the queue, `again` if its id was queued before."""

    def stepped(self, now: int, attempt: Attempt, moment: Moment, row: Row, op: Operation | None) -> None:
        """The prefetch machine took a row; `attempt.state` is the new state, `op` whom it was about."""

    def left(self, now: int, attempt: Attempt, event: str) -> None:
        """A running request left its batch: `retract` or `finish`."""

    def pinned(self, now: int, plan: PinPlan) -> None:
        """A pin was answered."""

    def unpinned(self, now: int, attempt: Attempt, event: str, tokens: int) -> None:
        """A held pin was given back: `unpin` or `lapse`."""

    def ended(self, now: int, op: Operation, event: str) -> None:
        """An orphan answered for the last time (`end`), or was taken for a newer question (`stale`)."""

    def node(self, now: int, event: str, node: Node, tokens: int) -> None:
        """Something happened to a node."""

    def believed(self, now: int, event: str, pool: str, pages: int, lowered: int) -> None:
        """Something happened to beliefs about so many pages, of which `lowered` are believed no more."""

    def refused(self, now: int, machine: str, event: str) -> None:
        """An illegal event was refused."""

    def passed(self, now: int) -> None:
        """A scheduling pass has been swept."""
