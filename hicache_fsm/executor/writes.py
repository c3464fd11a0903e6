"""Writes: device to host, then host to storage."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hicache_fsm.executor.core import PoolsCore
from hicache_fsm.executor.errors import OwnershipError
from hicache_fsm.executor.lanes import Job
from hicache_fsm.executor.slots import Block
from hicache_fsm.runtime import Undo, WriteCompletion


@dataclass(slots=True, eq=False)
class Write:
    """One page of one part on its way to storage, in one host page; `ok` once it is stored."""

    part: str
    name: str
    block: Block
    ok: bool = False


class WriteSide(PoolsCore):
    """The effects of the belief machine."""

    _writes: dict[tuple[str, str], Write]

    def _open_books(self) -> None:
        super()._open_books()
        self._writes = {}

    def launch_write(self, pool: str, pages: Sequence[Hashable], undo: Undo) -> None:
        names = [str(page) for page in pages]
        if pool not in self.parts:
            raise OwnershipError(f"there is no pool {pool}: use one of {', '.join(self.parts)}")
        sources = [self._source(pool, name) for name in names]
        writes: list[Write] = []
        jobs: list[Job] = []
        undo(lambda: self._withdraw(writes, jobs))
        rest = self.host.slots.take(len(names), f"writes of {pool}")
        for name in names:
            block, rest = rest.split(1)
            write = Write(pool, name, block)
            writes.append(write)
            self._writes[pool, name] = write
        rest.release()
        lent = {id(block): block for block, _ in sources}
        work = [(slots, write.block.slots) for (_, slots), write in zip(sources, writes, strict=True)]
        job = Job(
            partial(self._from_device, pool, work),
            partial(self._copied, writes, jobs),
            [*(write.block for write in writes), *lent.values()],
        )
        jobs.append(self._start(self.copies, job))

    def settle_write(self, pool: str, pages: Sequence[Hashable]) -> None:
        for page in pages:
            write = self._writes.pop((pool, str(page)), None)
            if write is not None:
                write.block.release()

    @property
    def write_pages(self) -> int:
        """Host pages of writes that are not settled."""
        return len(self._writes)

    def _source(self, part: str, name: str) -> tuple[Block, object]:
        """The device block that has the page, and the page's slots in it.  Raises OwnershipError."""
        raise NotImplementedError

    def _from_device(self, part: str, work: Sequence[tuple[object, object]], job: Job) -> None:
        for slots, page in work:
            self.host.from_device(self.device, part, slots, page)

    def _copied(self, writes: list[Write], jobs: list[Job], copy: Job) -> None:
        wanted = [write for write in writes if self._current(write)]
        if copy.withdrawn or not wanted:
            return
        if copy.error is not None:
            self._acknowledge(wanted)
            return
        work = [(write, int(write.block.slots[0])) for write in wanted]
        job = Job(
            partial(self._store, work), partial(self._stored, wanted), [write.block for write in wanted]
        )
        jobs.append(self._start(self.storage, job))

    def _store(self, work: Sequence[tuple[Write, int]], job: Job) -> None:
        for write, slot in work:
            if job.stop:
                return
            try:
                self.store.write(write.part, write.name, bytes(self.host.page(write.part, slot)))
                write.ok = True
            except Exception as error:
                job.error = error

    def _stored(self, writes: list[Write], job: Job) -> None:
        if not job.withdrawn:
            self._acknowledge([write for write in writes if self._current(write)])

    def _acknowledge(self, writes: list[Write]) -> None:
        for ok in (True, False):
            names = [write.name for write in writes if write.ok is ok]
            if names:
                self._post(WriteCompletion(writes[0].part, names, ok))

    def _current(self, write: Write) -> bool:
        return self._writes.get((write.part, write.name)) is write

    def _withdraw(self, writes: list[Write], jobs: list[Job]) -> None:
        for job in jobs:
            job.withdraw()
        for write in writes:
            if self._current(write):
                del self._writes[write.part, write.name]
                write.block.release()

    def _owners(self) -> Iterator[tuple[str, Block]]:
        yield from super()._owners()
        for write in self._writes.values():
            yield f"write of {write.name}", write.block
