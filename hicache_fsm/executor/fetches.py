"""Questions, reads into host pages, holds, and the seats on the device that holds are copied to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from hicache_fsm.executor.core import PoolsCore, raise_copy_error
from hicache_fsm.executor.device import Span
from hicache_fsm.executor.errors import NotReadError, OwnershipError, UseAfterFreeError
from hicache_fsm.executor.lanes import Job
from hicache_fsm.executor.slots import Block
from hicache_fsm.runtime import AttemptKey, Completion, Undo


@dataclass(slots=True, eq=False)
class Fetch:
    """One operation: the pages it asks for, its I/O under way, the host pages it owns, in order.

    `start` is the first page's place in the prompt, `read` how many pages an ended read has filled.
    """

    key: AttemptKey
    number: int
    start: int
    names: Sequence[str]
    job: Job | None = None
    blocks: list[Block] = field(default_factory=list)
    read: int = 0
    orphan: bool = False

    @property
    def filled(self) -> int:
        """How many leading pages of those it owns have been read by now."""
        return min(self.read if self.job is None else self.job.pages, sum(map(len, self.blocks)))


@dataclass(slots=True, eq=False)
class Hold:
    """Host pages of an attempt, those of the prompt from page `start` on, in parts by operation."""

    start: int
    parts: dict[int, list[Block]] = field(default_factory=dict)

    @property
    def blocks(self) -> list[Block]:
        """All parts, in order."""
        return [block for blocks in self.parts.values() for block in blocks]

    @property
    def end(self) -> int:
        """The page of the prompt that follows."""
        return self.start + sum(map(len, self.blocks))


@dataclass(slots=True, eq=False)
class Seat:
    """Device slots of an admitted request; the first `known` tokens have their rows once `job` has ended."""

    span: Span
    known: int = 0
    job: Job | None = None
    consumed: bool = False


class FetchSide(PoolsCore):
    """The effects of prefetch and operation machines."""

    _fetches: dict[int, Fetch]
    _holds: dict[AttemptKey, Hold]
    _seats: dict[AttemptKey, Seat]

    def _open_books(self) -> None:
        super()._open_books()
        self._fetches, self._holds, self._seats = {}, {}, {}

    def room(self, key: AttemptKey, pages: int) -> str:
        """Host pages under writes, copies and orphans count as taken."""
        return "" if pages <= self.host.free_pages else "host_capacity"

    def ask(self, key: AttemptKey, op: int, tokens: int, undo: Undo) -> None:
        fetch = self._question(key, op, tokens)
        undo(lambda: self._forget(fetch))
        self._fetches[op] = fetch
        self._begin(fetch, Job(partial(self._look, fetch.names), partial(self._answered, fetch)))

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None:
        fetch = self._fetches[op]
        undo(lambda: self._drop_read(fetch))
        block = self.host.slots.take(pages, f"operation {op}")
        fetch.blocks = [block]
        work = partial(self._read, fetch.names[:pages], block.slots.tolist())
        self._begin(fetch, Job(work, partial(self._read_ended, fetch), [block]))

    def end_operation(self, key: AttemptKey, op: int) -> None:
        self._forget(self._operation(key, op))

    def stage_hold(self, key: AttemptKey, op: int, pages: int) -> None:
        fetch = self._operation(key, op)
        kept = self._keep(fetch, pages)
        self._forget(fetch)
        self._hold(key, fetch, kept)

    def free_pages(self, key: AttemptKey, op: int) -> None:
        self._forget(self._operation(key, op))

    def orphan_operation(self, key: AttemptKey, op: int) -> None:
        fetch = self._operation(key, op)
        fetch.orphan = True
        if fetch.job is not None:
            fetch.job.stop = True
        elif not fetch.blocks:
            self._fetches.pop(op, None)

    def cut_operation(self, key: AttemptKey, op: int, pages: int) -> None:
        fetch = self._operation(key, op)
        kept = self._keep(fetch, pages)
        self._hold(key, fetch, kept)
        fetch.orphan = True
        if fetch.job is not None:
            fetch.job.stop = True

    def free_orphan_pages(self, op: int) -> None:
        fetch = self._fetches.get(op)
        if fetch is not None:
            self._forget(fetch)

    def consume_hold(self, key: AttemptKey, pages: int) -> None:
        seat = self._seats.get(key)
        if seat is None:
            raise OwnershipError(f"{key} has no seat on the device: call seat before admit")
        if seat.consumed:
            return
        hold = self._holds.get(key, Hold(0))
        size, held = self.sizes.page_size, hold.end - hold.start
        if held != pages:
            raise UseAfterFreeError(f"the hold of {key} has {held} pages, not {pages}")
        if hold.start * size > seat.known:
            raise OwnershipError(f"the device has lost what the hold of {key} follows: call shrink")
        if hold.end * size > len(seat.span):
            raise OwnershipError(f"the seat of {key} has {len(seat.span)} tokens for {hold.end} pages")
        sides = dict(zip(self.parts, seat.span.blocks, strict=True))
        start, work = hold.start * size, []
        for block in hold.blocks:
            end = start + len(block) * size
            for name, side in sides.items():
                work.append((name, block.slots, side.slots[start:end]))
            start = end
        job = Job(partial(self._to_device, work), self._copied_in, [*hold.blocks, *seat.span.blocks])
        self._start(self.copies, job)
        seat.job, seat.consumed, seat.known = job, True, max(seat.known, start)
        self._drop_hold(key)

    def release_hold(self, key: AttemptKey, pages: int) -> None:
        self._drop_hold(key)

    def seat(self, key: AttemptKey, tokens: int) -> Span:
        """Device slots for all `tokens` of a request that is about to be admitted.

        Raises PoolExhaustedError; OwnershipError for a second seat.
        """
        if key in self._seats:
            raise OwnershipError(f"{key} has a seat already")
        span = self.device.take(tokens, f"request {key}")
        self._seats[key] = Seat(span)
        return span

    def seated(self, key: AttemptKey) -> Span | None:
        """The request's seat."""
        seat = self._seats.get(key)
        return None if seat is None else seat.span

    def known_tokens(self, key: AttemptKey) -> int:
        """Leading tokens of the seat whose rows come from elsewhere; they are there once it is `ready`."""
        return self._seats[key].known

    def ready(self, key: AttemptKey) -> bool:
        """Whether the request's hold has reached the device."""
        return self._seats[key].job is None

    def unseat(self, key: AttemptKey) -> None:
        """The request leaves the device; slots that are being copied to go back when the copy has ended."""
        seat = self._seats.pop(key, None)
        if seat is not None:
            self.device.give_back(seat.span)

    def read_tokens(self, op: int) -> int:
        """Tokens that a read has brought by now: what `cut` and `expire` may keep."""
        fetch = self._fetches.get(op)
        return fetch.filled * self.sizes.page_size if fetch is not None else 0

    @property
    def fetch_pages(self) -> int:
        """Host pages of operations, orphans included, and of holds: what the lifecycle counts as occupied."""
        owned = [block for fetch in self._fetches.values() for block in fetch.blocks]
        return sum(map(len, owned)) + sum(hold.end - hold.start for hold in self._holds.values())

    def _question(self, key: AttemptKey, op: int, tokens: int) -> Fetch:
        """A question is for the last `tokens` of the prompt's whole pages, and has to follow a hold."""
        chain = self._chain(key)
        start = max(0, len(chain) - tokens // self.sizes.page_size)
        hold = self._holds.get(key)
        if hold is not None and hold.end != start:
            raise OwnershipError(
                f"{key} holds pages {hold.start} to {hold.end}, and asks from page {start} on"
            )
        return Fetch(key, op, start, tuple(chain[start:]))

    def _begin(self, fetch: Fetch, job: Job) -> None:
        fetch.job = self._start(self.storage, job)

    def _look(self, names: Sequence[str], job: Job) -> None:
        for name in names:
            if job.stop:
                return
            job.absent = [(part, name) for part in self.parts if not self.store.exists(part, name)]
            if job.absent:
                return
            job.pages += 1

    def _read(self, names: Sequence[str], slots: Sequence[int], job: Job) -> None:
        for name, slot in zip(names, slots, strict=True):
            if job.stop:
                return
            pages = {part: self.host.page(part, slot) for part in self.parts}
            job.absent = [
                (part, name) for part, page in pages.items() if not self.store.read(part, name, page)
            ]
            if job.absent:
                return
            job.pages += 1

    def _to_device(self, work: Sequence[tuple[str, object, object]], job: Job) -> None:
        for name, pages, slots in work:
            self.host.to_device(self.device, name, pages, slots)
        self.device.wait()

    def _answered(self, fetch: Fetch, job: Job) -> None:
        if not self._over(fetch, job):
            return
        stored, wanted = job.pages * self.sizes.page_size, len(fetch.names) * self.sizes.page_size
        if job.error is not None or fetch.orphan:
            self._post(Completion(fetch.number, "miss", why="terminated"))
        elif stored >= self.sizes.threshold:
            self._post(Completion(fetch.number, "hit", tokens=stored, wanted=wanted))
        else:
            self._post(Completion(fetch.number, "miss", why="below_threshold" if stored else "absent"))

    def _read_ended(self, fetch: Fetch, job: Job) -> None:
        if not self._over(fetch, job):
            return
        fetch.read = job.pages
        if job.pages and not fetch.orphan:
            self._post(Completion(fetch.number, "done", tokens=job.pages * self.sizes.page_size))
        else:
            self._post(Completion(fetch.number, "fail", why="discarded" if fetch.orphan else "read_error"))

    def _over(self, fetch: Fetch, job: Job) -> bool:
        """Whether anybody waits for the job's answer, which has come."""
        if job.withdrawn or fetch.job is not job or self._fetches.get(fetch.number) is not fetch:
            return False
        fetch.job = None
        for part, name in job.absent:
            self._inbox.deny(part, [name])
        return True

    def _copied_in(self, job: Job) -> None:
        for seat in self._seats.values():
            if seat.job is job:
                seat.job = None
        raise_copy_error(job)

    def _operation(self, key: AttemptKey, op: int) -> Fetch:
        """The operation, with the pages that a former, failed try of the same event made a hold."""
        fetch = self._fetches.setdefault(op, Fetch(key, op, 0, ()))
        hold = self._holds.get(key)
        if hold is not None and op in hold.parts:
            kept = hold.parts.pop(op)
            fetch.start = hold.end
            fetch.blocks, fetch.read = kept + fetch.blocks, max(fetch.read, sum(map(len, kept)))
            if not hold.parts:
                del self._holds[key]
        return fetch

    def _keep(self, fetch: Fetch, pages: int) -> list[Block]:
        """Take the leading pages from the operation. Raises NotReadError unless they have been read."""
        if pages > fetch.filled:
            raise NotReadError(f"operation {fetch.number} has read {fetch.filled} pages, not {pages}")
        job, kept = fetch.job, list[Block]()
        while missing := pages - sum(map(len, kept)):
            block = fetch.blocks.pop(0)
            if len(block) > missing:
                block, rest = block.split(missing)
                fetch.blocks.insert(0, rest)
            if job is not None:
                job.give_back(block)
            kept.append(block)
        return kept

    def _forget(self, fetch: Fetch) -> None:
        self._drop_read(fetch)
        if self._fetches.get(fetch.number) is fetch:
            del self._fetches[fetch.number]

    def _drop_read(self, fetch: Fetch) -> None:
        if fetch.job is not None:
            fetch.job.withdraw()
            fetch.job = None
        while fetch.blocks:
            fetch.blocks.pop().release()

    def _hold(self, key: AttemptKey, fetch: Fetch, blocks: list[Block]) -> None:
        for block in blocks:
            block.pass_on(f"hold of {key}")
        if blocks:
            self._holds.setdefault(key, Hold(fetch.start)).parts[fetch.number] = blocks

    def _drop_hold(self, key: AttemptKey) -> None:
        hold = self._holds.pop(key, None)
        for block in hold.blocks if hold is not None else ():
            block.release()

    def _owners(self) -> Iterator[tuple[str, Block]]:
        yield from super()._owners()
        for fetch in self._fetches.values():
            for block in fetch.blocks:
                yield f"operation {fetch.number}", block
        for key, hold in self._holds.items():
            for block in hold.blocks:
                yield f"hold of {key}", block
        for key, seat in self._seats.items():
            for block in seat.span.blocks:
                yield f"seat of {key}", block
