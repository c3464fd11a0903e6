"""Gates on the controller's threads and on the scheduler's decisions.

A gate decides *when* something happens, never *what*: the code behind each is the installed SGLang's. While the
scheduler's thread works, the I/O threads stand at their queues; between two steps they run until each of them
either sleeps on an empty queue or is held inside a storage call. No gate sleeps on the clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, Queue
from typing import Any

from .pacing import FEEDS, POLL_S, THREADS, SettleError


class FeedQueue(Queue[Any]):
    """A controller queue that an I/O thread takes from: while it is ``choosy``, only what it is told to.

    The thread goes on with an item only while the gate is open. What wakes a thread up (None) always passes.
    """

    gate: threading.Event
    owner: int

    def __init__(self) -> None:
        super().__init__()
        self.choosy = True
        self.taken: Any = None
        """What an I/O thread took last."""
        self.on_put: Callable[[Any], None] | None = None
        self._chosen: Any = None

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if self.on_put is not None and item is not None:
            self.on_put(item)

    def choose(self, item: Any) -> None:
        """Let the thread have this item next. Raises ``ValueError`` if it is not queued."""
        with self.mutex:
            if not any(one is item for one in self.queue):
                raise ValueError("not queued")
            self._chosen = item
            self.not_empty.notify_all()

    def let_all(self) -> None:
        """From now on the thread takes what comes, in order."""
        with self.mutex:
            self.choosy = False
            self.not_empty.notify_all()

    def _ready(self) -> int | None:
        """The place of the item that the thread may take now."""
        for place, one in enumerate(self.queue):
            if not self.choosy or one is None or one is self._chosen:
                return place
        return None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if threading.get_ident() == self.owner:
            return super().get(block, timeout)
        with self.not_empty:
            end = None if timeout is None else time.monotonic() + timeout
            while (place := self._ready()) is None:
                left = None if end is None else end - time.monotonic()
                if not block or (left is not None and left <= 0):
                    raise Empty
                self.not_empty.wait(left)
            item = self.queue[place]
            del self.queue[place]
            if item is self._chosen:
                self._chosen = None
            self.taken = item
        self.gate.wait()
        return item

    def consumer_sleeps(self) -> bool:
        """Whether nothing may be taken and the consumer waits for more."""
        with self.mutex:
            return self._ready() is None and bool(self.not_empty._waiters)  # type: ignore[attr-defined]


def feed_queues(gate: threading.Event) -> type[FeedQueue]:
    """The queue class of one controller, to put in place of ``queue.Queue`` before the controller is built."""
    return type("FeedQueue", (FeedQueue,), {"gate": gate, "owner": threading.get_ident()})


class Rest:
    """The I/O threads of one controller: runs them until all are at rest. Belongs to the scheduler's thread."""

    def __init__(self, controller: Any, gate: threading.Event, *, limit_s: float = 30.0) -> None:
        self._controller = controller
        self._gate = gate
        self._limit_s = limit_s

    def settle(self) -> None:
        """Let the threads run until each sleeps or is held, then close the gate. Raises ``SettleError``."""
        if self._controller.storage_backend is None:
            return
        self._gate.set()
        give_up = time.monotonic() + self._limit_s
        # upstream of a queue before the queue, so that one look in order is enough
        for feed, thread in zip(FEEDS, THREADS, strict=True):
            while not self._at_rest(feed, thread):
                if time.monotonic() > give_up:
                    raise SettleError(f"{thread} did not settle within {self._limit_s:.0f} s")
                threading.Event().wait(POLL_S)
        self._gate.clear()

    def _at_rest(self, feed: str, thread: str) -> bool:
        worker = getattr(self._controller, thread)
        if not worker.is_alive() or self._controller.storage_backend.holds(worker.ident):
            return True
        return bool(getattr(self._controller, feed).consumer_sleeps())


class AckGate:
    """Which copies to the device count as finished: on a CPU they are finished at once, so that each waits to be told.

    Completion stays in queue order. Copies to the host pass.
    """

    def __init__(self, tree: Any) -> None:
        self._original = tree._count_ready_acks
        self._controller = tree.cache_controller
        self.open = False
        self._let: set[int] = set()
        tree._count_ready_acks = self._count

    def let(self, ids: Iterable[int]) -> None:
        """The copies of these node ids have finished."""
        self._let.update(ids)

    def reset(self) -> None:
        """All are held again."""
        self.open = False
        self._let.clear()

    def _count(self, queue: Any) -> int:
        ready = int(self._original(queue))
        if self.open or queue is not self._controller.ack_load_queue:
            return ready
        for place, ack in enumerate(queue[:ready]):
            if not self._let.issuperset(ack.node_ids):
                return place
        return ready


class AdmissionGate:
    """Whom the admission scan may look at, and whom it may admit.

    A request that is not ``seen`` is skipped as though its prefetch were still on its way; one that is seen but not
    ``admitted`` is polled, matched and planned, and then passed over as though its turn had not come. None is all.
    """

    def __init__(self, tree: Any, adder: Any) -> None:
        self.seen: frozenset[str] | None = frozenset()
        self.admitted: frozenset[str] | None = frozenset()
        self.verdicts: dict[str, str] = {}
        """What the scan last said of a request that it was allowed to admit."""
        poll, add = tree.check_prefetch_progress, adder.add_one_req
        gate = self

        def check_prefetch_progress(handle: Any) -> bool:
            rid = getattr(handle, "rid", handle)
            if gate.seen is not None and rid not in gate.seen:
                return False
            ready = bool(poll(handle))
            if not ready:
                gate.verdicts[rid] = "its prefetch is still on its way"
            return ready

        def add_one_req(self: Any, req: Any, *args: Any, **kwargs: Any) -> Any:
            if gate.admitted is not None and req.rid not in gate.admitted:
                return type(self.budget_state()).CONTINUE
            verdict = add(self, req, *args, **kwargs)
            gate.verdicts[req.rid] = f"the scan said {getattr(verdict, 'name', verdict)}"
            return verdict

        tree.check_prefetch_progress = check_prefetch_progress
        adder.add_one_req = add_one_req

    def close(self) -> None:
        """Nobody is looked at."""
        self.seen = self.admitted = frozenset()

    def open(self, seen: Iterable[str] | None, admitted: Iterable[str] | None) -> None:
        """Whom the next pass may look at and admit; None is everybody."""
        self.verdicts.clear()
        self.seen = None if seen is None else frozenset(seen)
        self.admitted = None if admitted is None else frozenset(admitted)


class DecodeGate:
    """Keeps running requests as they are while ``stepped.hold_decode``: no token comes, and nothing is let go."""

    def __init__(self, stepped: Any) -> None:
        from sglang.srt.model_executor.forward_batch_info import ForwardMode

        update = stepped.scheduler.update_running_batch

        def update_running_batch(batch: Any) -> Any:
            if not stepped.hold_decode:
                return update(batch)
            # as a decode would leave it: 0.5.19 takes a batch that still says "extend" for one to merge again
            batch.forward_mode = ForwardMode.DECODE
            return batch

        stepped.scheduler.update_running_batch = update_running_batch
        stepped.hold_decode = True
