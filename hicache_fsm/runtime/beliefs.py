"""What the scheduler believes storage holds: one belief per pool and page hash, buffer mode only."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from hicache_fsm.machine import CompiledMachine, Row
from hicache_fsm.rules import keep_pages
from hicache_fsm.runtime.executor import Executor, Rollback
from hicache_fsm.runtime.journal import Journal
from hicache_fsm.spec import Constants, Machine

CAPACITY: Final = 512 * 1024
"""Beliefs kept per pool, as upstream does; beyond it the least recently used falls out, which costs one
write.
"""

Page = Hashable

AGAINST: Final = frozenset({"write_failed", "discard", "deny", "clear", "detach"})
"""Events that are evidence against a page."""


class Pool:
    """One pool's pages in other than the initial state: believed, by last use, and being written."""

    __slots__ = ("believed", "other")

    def __init__(self) -> None:
        self.believed: OrderedDict[Page, None] = OrderedDict()
        self.other: dict[Page, int] = {}


class Beliefs:
    """Runs the belief machine.  In cache mode nothing is believed and every call is a no-op (#36386)."""

    def __init__(
        self,
        machine: Machine,
        constants: Constants,
        journal: Journal,
        executor: Executor,
        rollback: Rollback,
        *,
        active: bool,
        capacity: int = CAPACITY,
    ) -> None:
        self._table = CompiledMachine(machine)
        self._journal = journal
        self._executor = executor
        self._rollback = rollback
        self._active = active
        self._capacity = capacity
        self._pools: dict[str, Pool] = {}
        self._believed = self._table.state_ids["believed"]
        self._kept = self._table.mask(["kept"])
        self._profile = self._table.mask(
            name for name in ("believes_failed", "forgets_detached") if getattr(constants, name)
        )

    def write(self, pool: str, pages: Sequence[Page]) -> list[Page]:
        """An insert offers pages: those to be written now, in order; their write has been launched.

        Raises what launching raises, and believes nothing new then.
        """
        if not self._active:
            return list(pages)
        rows = self._decide(pool, "write", pages)
        launched = [page for page, row in rows.items() if "launch_write" in row.transition.effects]
        if launched:
            with self._rollback:
                self._executor.launch_write(pool, launched, self._rollback.undo)
        lowered = self._take(pool, "write", rows)
        if launched:
            self._journal.believed("write", pool, len(launched), lowered)
        return launched

    def answer(self, event: str, pool: str, pages: Sequence[Page]) -> None:
        """Storage said something of pages: stored, write_failed, confirm or deny.

        An acknowledgement of a write that is no longer tracked, as after a flush, changes nothing.
        """
        if not self._active:
            return
        rows = self._decide(pool, event, pages)
        self._settle(pool, rows)
        lowered = self._take(pool, event, rows)
        if rows:
            self._journal.believed(event, pool, len(rows), lowered)

    def discard(
        self,
        pool: str,
        chain: Sequence[Page],
        completed_pages: int,
        transfers: Sequence[tuple[int | None, int]],
    ) -> int:
        """A hybrid fetch of `chain` was discarded: believe only what every pool served (#36386).

        `completed_pages` is what the KV pool read; each auxiliary transfer is (its number of keys or None,
        pages hit). Returns the pages kept; 0 in cache mode, where nothing is believed. Raises ValueError for
        negative numbers.
        """
        keep = min(keep_pages(completed_pages, len(chain), transfers), len(chain))
        if not self._active:
            return 0
        beyond = dict.fromkeys(chain[keep:])
        lowered = self._take(pool, "discard", self._decide(pool, "discard", beyond))
        kept = self._decide(
            pool, "discard", (page for page in chain[:keep] if page not in beyond), self._kept
        )
        self._take(pool, "", kept)
        self._journal.believed("discard", pool, len(chain), lowered, keep)
        return keep

    def everywhere(self, event: str) -> None:
        """Something happened to all of storage or of the cache: clear, detach or reset."""
        for name, pool in self._pools.items():
            rows = self._decide(name, event, [*pool.believed, *pool.other])
            self._settle(name, rows)
            lowered = self._take(name, event, rows)
            if rows:
                self._journal.believed(event, name, len(rows), lowered)

    def state(self, pool: str, page: Page) -> str:
        """The belief machine's state for one page."""
        return self._table.states[self._state(self._pools.get(pool), page)]

    def __len__(self) -> int:
        """Pages about which something is believed or being written."""
        return sum(len(pool.believed) + len(pool.other) for pool in self._pools.values())

    def _state(self, pool: Pool | None, page: Page) -> int:
        if pool is None:
            return self._table.initial
        return self._believed if page in pool.believed else pool.other.get(page, self._table.initial)

    def _decide(self, pool: str, event: str, pages: Iterable[Page], truth: int = 0) -> dict[Page, Row]:
        books, number = self._pools.get(pool), self._table.event_ids[event]
        rows = {}
        for page in pages:
            row = self._table.decide(self._state(books, page), number, truth | self._profile)
            if row is not None:
                rows[page] = row
        return rows

    def _settle(self, pool: str, rows: dict[Page, Row]) -> None:
        settled = [page for page, row in rows.items() if "settle_write" in row.transition.effects]
        if settled:
            self._executor.settle_write(pool, settled)

    def _take(self, pool: str, event: str, rows: dict[Page, Row]) -> int:
        """Book the rows.  Returns how many pages that were believed are believed no more."""
        books = self._pools.setdefault(pool, Pool())
        before = len(books.believed)
        monitor = self._journal.monitor if event in AGAINST else None
        for page, row in rows.items():
            books.believed.pop(page, None)
            books.other.pop(page, None)
            if row.dest == self._believed:
                books.believed[page] = None
            elif row.dest != self._table.initial:
                books.other[page] = row.dest
            if monitor is not None:
                monitor.belief(self._journal.now, event, pool, row.dest == self._believed)
        lowered = max(0, before - len(books.believed))
        overflow = self._table.event_ids["overflow"]
        while len(books.believed) > self._capacity:
            falls = self._table.decide(self._believed, overflow)
            if falls is None or falls.dest == self._believed:
                break
            books.believed.popitem(last=False)
        return lowered
