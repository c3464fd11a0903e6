"""The seam between the machines and the pools: one method per effect that touches a resource."""

from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import Protocol

from hicache_fsm.runtime.attempt import AttemptKey, Node

Undo = Callable[[Callable[[], None]], None]
"""Registers how to give back what an effect acquires; called in reverse order if anything later fails."""


class Executor(Protocol):
    """Carries effects out, on the scheduler's thread, before the machine takes its new state.

    A method may raise: the machine then stays in its old state. One that acquires gets `undo` and registers
    the way back *before* it acquires, so that a failure half way through is undone too; the way back must not
    raise. One that releases must be idempotent per owner: it is called again when the event is tried again
    after a later effect failed. No method may call back into the lifecycle. Operations are numbers; pages are
    host pages.
    """

    def room(self, key: AttemptKey, pages: int) -> str:
        """Why a posted or a parked hit may not be fetched now: rate_limited, pin_cap, host_capacity or turn.

        Nothing if it may. `pin_cap` is an error under a profile that pins early (see `HiCacheLifecycle.hit`).
        """

    def ask(self, key: AttemptKey, op: int, tokens: int, undo: Undo) -> None:
        """Put the question to storage; it owns no pages."""

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None:
        """Take host pages and start the read into them."""

    def end_operation(self, key: AttemptKey, op: int) -> None:
        """The operation, which owns no pages, has answered for the last time."""

    def stage_hold(self, key: AttemptKey, op: int, pages: int) -> None:
        """The read is over: `pages` leading ones are the attempt's hold, the rest go back."""

    def free_pages(self, key: AttemptKey, op: int) -> None:
        """The read is over and useless: all its pages go back."""

    def orphan_operation(self, key: AttemptKey, op: int) -> None:
        """Tell the operation to stop; its pages stay with it until its I/O has ended (#31668)."""

    def cut_operation(self, key: AttemptKey, op: int, pages: int) -> None:
        """The `pages` leading ones are the attempt's hold; the rest stay with the stopped operation."""

    def free_orphan_pages(self, op: int) -> None:
        """The stopped operation's I/O has ended: its pages go back."""

    def consume_hold(self, key: AttemptKey, pages: int) -> None:
        """Copy the hold to the device; its pages go back when the copy is acknowledged."""

    def release_hold(self, key: AttemptKey, pages: int) -> None:
        """The hold goes back unused."""

    def lock_anchor(self, key: AttemptKey, node: Node, tokens: int, undo: Undo) -> None:
        """Lock the anchor's path on the device."""

    def unlock_anchor(self, key: AttemptKey, node: Node, tokens: int) -> None:
        """Unlock what this holder locked."""

    def launch_write(self, pool: str, pages: Sequence[Hashable], undo: Undo) -> None:
        """Start writing the pages to storage."""

    def settle_write(self, pool: str, pages: Sequence[Hashable]) -> None:
        """The writes of these pages are over."""

    def claim(self, node: Node, owner: Hashable, undo: Undo) -> None:
        """The load-back `owner` takes the node's missing slots."""

    def unclaim(self, node: Node, owner: Hashable) -> None:
        """The load-back gives the node up."""

    def free_swa(self, node: Node) -> None:
        """Free the SWA side of the node's slots."""

    def free_both(self, node: Node) -> None:
        """Free both sides of the node's slots."""

    def free_full(self, node: Node) -> None:
        """Free the full side only: the SWA peer is gone already (#36637)."""


class NullExecutor:
    """Touches nothing: the lifecycle runs on its own ledger alone."""

    def room(self, key: AttemptKey, pages: int) -> str:
        return ""

    def ask(self, key: AttemptKey, op: int, tokens: int, undo: Undo) -> None: ...

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None: ...

    def end_operation(self, key: AttemptKey, op: int) -> None: ...

    def stage_hold(self, key: AttemptKey, op: int, pages: int) -> None: ...

    def free_pages(self, key: AttemptKey, op: int) -> None: ...

    def orphan_operation(self, key: AttemptKey, op: int) -> None: ...

    def cut_operation(self, key: AttemptKey, op: int, pages: int) -> None: ...

    def free_orphan_pages(self, op: int) -> None: ...

    def consume_hold(self, key: AttemptKey, pages: int) -> None: ...

    def release_hold(self, key: AttemptKey, pages: int) -> None: ...

    def lock_anchor(self, key: AttemptKey, node: Node, tokens: int, undo: Undo) -> None: ...

    def unlock_anchor(self, key: AttemptKey, node: Node, tokens: int) -> None: ...

    def launch_write(self, pool: str, pages: Sequence[Hashable], undo: Undo) -> None: ...

    def settle_write(self, pool: str, pages: Sequence[Hashable]) -> None: ...

    def claim(self, node: Node, owner: Hashable, undo: Undo) -> None: ...

    def unclaim(self, node: Node, owner: Hashable) -> None: ...

    def free_swa(self, node: Node) -> None: ...

    def free_both(self, node: Node) -> None: ...

    def free_full(self, node: Node) -> None: ...


class Rollback:
    """What effects acquired, by the `undo` they registered: `commit` keeps it, `roll_back` gives it back."""

    __slots__ = ("commit", "undo", "ways")

    def __init__(self) -> None:
        self.ways: list[Callable[[], None]] = []
        self.undo: Undo = self.ways.append
        self.commit = self.ways.clear

    def roll_back(self) -> None:
        """Give back, newest first.  A way back that raises does not stop the others: ExceptionGroup then."""
        failures: list[Exception] = []
        while self.ways:
            try:
                self.ways.pop()()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise ExceptionGroup("effects could not be undone", failures)

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.roll_back()
