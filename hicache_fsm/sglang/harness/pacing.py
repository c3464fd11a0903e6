"""Storage that answers in scheduling passes instead of seconds, so that a seed fixes every order.

The controller's I/O threads stay real threads. They run only *between* passes: an item handed over
during a pass waits at the queue, a storage call waits until its pass has come, and a pass begins when
every thread either sleeps on an empty queue or is held inside a call. What a thread sees and when is
then a function of the pass count alone.
"""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

from ..settings import IoLatency

CALLS = {
    "batch_exists": "exists",
    "batch_exists_v2": "exists",
    "batch_get": "read",
    "batch_get_v1": "read",
    "batch_get_v2": "read",
    "batch_set": "write",
    "batch_set_v1": "write",
    "batch_set_v2": "write",
}
FEEDS = ("prefetch_queue", "prefetch_buffer", "prefetch_sync_queue", "backup_queue")
THREADS = ("prefetch_thread", "prefetch_io_aux_thread", "prefetch_sync_thread", "backup_thread")
POLL_S = 1e-4


class SettleError(RuntimeError):
    """An I/O thread neither finished nor reached a held storage call."""


class _GatedQueue(Queue[Any]):
    """A queue whose consumer goes on only while the gate is open."""

    def __init__(self, gate: threading.Event) -> None:
        super().__init__()
        self._gate = gate

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        item = super().get(block, timeout)
        self._gate.wait()
        return item

    def consumer_sleeps(self) -> bool:
        """Whether nothing is queued and the consumer waits for more."""
        with self.mutex:
            return not self._qsize() and bool(self.not_empty._waiters)  # type: ignore[attr-defined]


@dataclass(slots=True)
class _Held:
    """A storage call waiting for its pass."""

    due: int
    go: threading.Event = field(default_factory=threading.Event)


class IoClock:
    """Owns the gate and the pass count of one controller. All methods belong to the scheduler's thread."""

    def __init__(self, controller: Any, latency: IoLatency, *, settle_limit_s: float = 60.0) -> None:
        self._controller = controller
        self._latency = latency
        self._limit_s = settle_limit_s
        self._gate = threading.Event()
        self._held: dict[int, _Held] = {}
        self._lock = threading.Lock()
        self._released = False
        self.now = 0
        """Scheduling passes begun so far."""
        for name in FEEDS:
            old: Queue[Any] = getattr(controller, name)
            setattr(controller, name, _GatedQueue(self._gate))
            old.put(None)  # wakes the consumer, which then looks its queue up again
        backend = controller.storage_backend
        for name, kind in CALLS.items():
            if hasattr(backend, name):
                setattr(backend, name, self._hold(getattr(backend, name), getattr(latency, kind)))

    def _hold(self, call: Any, passes: int) -> Any:
        if passes == 0:
            return call

        @functools.wraps(call)
        def held(*args: Any, **kwargs: Any) -> Any:
            ticket = _Held(self.now + passes)
            with self._lock:
                if not self._released:
                    self._held[threading.get_ident()] = ticket
                else:
                    ticket.go.set()
            ticket.go.wait()
            return call(*args, **kwargs)

        return held

    def begin_pass(self) -> None:
        """Let the I/O threads run up to this pass, wait until they have, then close the gate.

        Raises ``SettleError`` when a thread is stuck.
        """
        self.now += 1
        self._gate.set()
        self._settle()
        # one at a time and writes first: two calls of one pass must not race for what storage holds
        for thread in reversed(THREADS):
            if self._let_go(thread):
                self._settle()
        self._gate.clear()

    def _let_go(self, thread: str) -> bool:
        """Let a thread go on whose held call has come to its pass; whether it had one."""
        ident = getattr(self._controller, thread).ident
        with self._lock:
            ticket = self._held.get(ident)
            if ticket is None or ticket.due > self.now:
                return False
            del self._held[ident]
        ticket.go.set()
        return True

    @property
    def busy(self) -> bool:
        """Whether storage still owes an answer, be it one that nobody waits for."""
        with self._lock:
            return bool(self._held)

    def release_all(self) -> None:
        """Open everything for good, for closing down."""
        self._gate.set()
        with self._lock:
            self._released = True
            tickets, self._held = list(self._held.values()), {}
        for ticket in tickets:
            ticket.go.set()

    def _at_rest(self, feed: str, thread: str) -> bool:
        ident = getattr(self._controller, thread).ident
        with self._lock:
            if ident in self._held:
                return True
        return bool(getattr(self._controller, feed).consumer_sleeps())

    def _settle(self) -> None:
        give_up = time.monotonic() + self._limit_s
        # upstream of a queue before the queue, so that one look in order is enough
        for feed, thread in zip(FEEDS, THREADS, strict=True):
            while not self._at_rest(feed, thread):
                if not getattr(self._controller, thread).is_alive():
                    raise SettleError(f"{thread} has ended: SGLang will never take its work up again")
                if time.monotonic() > give_up:
                    raise SettleError(f"{thread} did not settle within {self._limit_s:.0f} s")
                self._gate_pause()

    @staticmethod
    def _gate_pause() -> None:
        threading.Event().wait(POLL_S)
