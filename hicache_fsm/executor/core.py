"""What the sides of the torch pools share: the pools, the I/O threads, and the way back from them."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

from hicache_fsm.executor.device import DevicePool, Layout
from hicache_fsm.executor.host import HostPool
from hicache_fsm.executor.lanes import Job, Lane
from hicache_fsm.executor.slots import Block
from hicache_fsm.executor.stores import Store
from hicache_fsm.runtime import AttemptKey, Completion, WriteCompletion

Chain = Callable[[AttemptKey], Sequence[str]]
Answer = Completion | WriteCompletion


class Inbox(Protocol):
    """The side of a lifecycle that takes answers, and evidence against beliefs."""

    @property
    def post(self) -> Callable[[Answer], object]:
        """Takes one answer, from any thread."""

    def deny(self, pool: str, pages: Sequence[Hashable]) -> None:
        """Storage has not got the pages."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the pools: tokens on the device, pages on the host, `page_size` tokens a page.

    `width` is the elements of a token's row, `swa_tokens` the size of the sliding-window side of a `hybrid` or
    `swa` layout. `threshold` is how many tokens storage must have for a hit.
    """

    device_tokens: int
    host_pages: int
    page_size: int = 16
    width: int = 8
    layout: Layout = "dense"
    swa_tokens: int = 0
    threshold: int = 1


class PoolsCore:
    """Pools, threads and the queue of ended I/O.

    All books belong to the scheduler's thread.  An I/O thread gets slot numbers and bytes; what it did is
    booked when `drain` takes in its end, so that an answer of I/O that was undone or replaced meanwhile is
    dropped there, and an operation number that is used again is never answered by its former I/O.
    """

    def __init__(
        self,
        sizes: Sizes,
        store: Store,
        chain: Chain,
        *,
        device: Any = "cpu",
        dtype: Any = None,
        storage_threads: int = 2,
    ) -> None:
        """`chain` names the pages of an attempt's prompt that the device does not hold, in order.

        Raises HostMemoryError if the kernel refuses the host pool's memory.
        """
        self.sizes = sizes
        self.store = store
        self.device = DevicePool(
            sizes.layout,
            sizes.device_tokens,
            sizes.width,
            swa_tokens=sizes.swa_tokens,
            dtype=dtype,
            device=device,
        )
        self.host = HostPool(sizes.host_pages, sizes.page_size, self.device)
        self.parts = tuple(self.device.rows)
        self._chain = chain
        self._life: Inbox | None = None
        self._done: SimpleQueue[Job] = SimpleQueue()
        self._acknowledged: list[tuple[Hashable, Hashable]] = []
        self.in_flight = 0
        self.copies = Lane("copy", 1, self._done)
        self.storage = Lane("storage", storage_threads, self._done)
        self._open_books()

    def connect(self, life: Inbox) -> None:
        """Answers of storage go to this lifecycle from here on."""
        self._life = life

    def drain(self, *, wait: bool = False) -> list[tuple[Hashable, Hashable]]:
        """Book the I/O that has ended and post its answers; call it once a pass, before `begin_pass`.

        A page that storage turned out not to have is believed stored no more. Returns the load-backs (node, owner)
        whose copy was acknowledged, for `loaded_back`. With `wait` it returns only when no I/O is under way, so no
        lane may be paused then. Raises what a device copy raised.
        """
        while self.in_flight and (wait or not self._done.empty()):
            job = self._done.get()
            self.in_flight -= 1
            job.end()
        acknowledged, self._acknowledged = self._acknowledged, []
        return acknowledged

    def close(self) -> None:
        """Let the I/O under way end, book it, and stop the threads."""
        self.storage.resume()
        self.copies.resume()
        self.drain(wait=True)
        self.copies.close()
        self.storage.close()

    def audit(self) -> list[str]:
        """What is wrong with the pools' books, recounted, one line each.

        Every slot is free, or in one block that has one owner or waits for I/O.
        """
        found = [*self.device.audit(), *self.host.slots.audit()]
        named: dict[int, str] = {}
        for who, block in self._owners():
            if id(block) in named:
                found.append(f"{block!r} belong to {named[id(block)]} and to {who}")
            named[id(block)] = who
            if block.state == "free":
                found.append(f"{who} owns slots that were freed")
        for pool in (*self.device.pools.values(), self.host.slots):
            for block in pool.blocks():
                if block.state == "held" and id(block) not in named:
                    found.append(f"{block!r} belong to nobody: leaked")
                if block.state == "leaving" and not block.borrowers:
                    found.append(f"{block!r} wait for no I/O")
        return found

    @property
    def empty(self) -> bool:
        """Whether every slot of every pool is free."""
        return all(pool.free == pool.capacity for pool in (*self.device.pools.values(), self.host.slots))

    def _open_books(self) -> None:
        """Each side its own."""

    def _owners(self) -> Iterator[tuple[str, Block]]:
        """Who owns which block, told by each side."""
        yield from ()

    @property
    def _inbox(self) -> Inbox:
        if self._life is None:
            raise RuntimeError("connect the pools to their lifecycle first: pools.connect(life)")
        return self._life

    def _post(self, answer: Answer) -> None:
        self._inbox.post(answer)

    def _start(self, lane: Lane, job: Job) -> Job:
        self.in_flight += 1
        lane.submit(job)
        return job


def raise_copy_error(job: Job) -> None:
    """A device copy must not fail: raise what it raised."""
    if job.error is not None:
        raise job.error
