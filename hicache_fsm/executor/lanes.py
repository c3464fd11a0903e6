"""I/O threads: jobs in, ended jobs out.  A thread touches bytes, and no books."""

import logging
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Event, Thread

from hicache_fsm.executor.slots import Block

LOGGER = logging.getLogger("hicache_fsm.executor")


class Job:
    """One piece of I/O.

    `work` runs on a thread of its lane, `ended` on the scheduler's. `blocks` are lent to it from its making to
    its end. `stop` asks it to end early; `withdrawn` says that nobody waits for its answer any more; `pages` is
    how many it has done, `error` what stopped it, `absent` the page that was not stored, as (part, name).
    """

    __slots__ = ("absent", "blocks", "ended", "error", "pages", "stop", "withdrawn", "work")

    def __init__(
        self, work: "Callable[[Job], None]", ended: "Callable[[Job], None]", blocks: Iterable[Block] = ()
    ) -> None:
        self.work = work
        self.ended = ended
        self.blocks = list(blocks)
        self.stop = False
        self.withdrawn = False
        self.pages = 0
        self.absent: list[tuple[str, str]] = []
        self.error: Exception | None = None
        for block in self.blocks:
            block.lend(self)

    def withdraw(self) -> None:
        """Nobody waits for it any more; its blocks stay lent until it has ended."""
        self.stop = self.withdrawn = True

    def replace(self, block: Block, halves: Iterable[Block]) -> None:
        """A block that it has was split."""
        if block in self.blocks:
            self.blocks.remove(block)
            self.blocks += halves

    def give_back(self, block: Block) -> None:
        """It is done with one of its blocks."""
        if block in self.blocks:
            self.blocks.remove(block)
            block.returned(self)

    def end(self) -> None:
        """On the scheduler's thread: its end is told, then its blocks go back."""
        try:
            self.ended(self)
        finally:
            for block in list(self.blocks):
                self.give_back(block)


class Lane:
    """Threads that take jobs in the order in which they were handed over.  `pause` holds them between jobs."""

    def __init__(self, name: str, threads: int, done: "SimpleQueue[Job]") -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done = done
        self._open = Event()
        self._open.set()
        self.pause = self._open.clear
        self.resume = self._open.set
        self.submit = self._jobs.put
        self._threads = [
            Thread(target=self._run, name=f"hicache-{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def paused(self) -> bool:
        """Whether jobs are held."""
        return not self._open.is_set()

    def close(self) -> None:
        """Do what was handed over, then end the threads."""
        self.resume()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._open.wait()
            try:
                job.work(job)
            except Exception as error:
                # Whatever a storage raises is its error; the books are kept on the scheduler's thread.
                job.error = error
                LOGGER.debug("I/O failed", exc_info=True)
            self._done.put(job)
