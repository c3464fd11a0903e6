"""Watches the invariants of spec/invariants.toml at run time, one event at a time.

Shares no bookkeeping with the lifecycle: it hears which row was taken and keeps books of its own, so a row
that lost an effect, or a ledger that went wrong, shows. Each event costs the same however much is queued.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from hicache_fsm.runtime.settings import Settings
from hicache_fsm.spec import Machine, Transition

KEPT: Final = 1000
"""How many violations are kept word for word; all are counted."""

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Violation:
    """One invariant broken: its id, the pass, the attempt (or None), and what was seen."""

    invariant: str
    pass_: int
    key: Key | None
    message: str

    def __str__(self) -> str:
        where = f" {self.key[0]}#{self.key[1]}" if self.key is not None else ""
        return f"{self.invariant}: pass {self.pass_}{where}: {self.message}"


@dataclass(slots=True)
class Watched:
    """One attempt's books; pages are host pages, -1 no pass yet."""

    reissues: int
    marker: bool = False
    paced: bool = False
    raised: int = -1
    asked: bool = False
    op: int = 0
    hold: int = 0
    pin: int = -1


Effect = Callable[[Key, Watched, Transition, int, int], None]


class Monitor:
    """The invariants that can be judged from the events alone.  All limits are the profile's.

    `alarm` is called after each violation.
    """

    def __init__(
        self,
        *,
        interval: int,
        max_attempts: int,
        dense: bool,
        known_hit_immediate: bool,
        pin_cap: int,
        host_pages: int | None,
        live: frozenset[str],
    ) -> None:
        self._interval = interval
        self._max_attempts = max_attempts
        self._disabled = interval == 0 or dense
        self._immediate = known_hit_immediate
        self._pin_cap = pin_cap
        self._host_pages = host_pages
        self._live = live
        self._books: dict[Key, Watched] = {}
        self._pages: dict[int, int] = {}
        self._pinned = 0
        self._used_pages = 0
        self._claims: dict[Hashable, Hashable] = {}
        self._tombstones: set[Hashable] = set()
        self._now = 0
        self.alarm: Callable[[], None] | None = None
        self.counts: Counter[str] = Counter()
        self.violations: deque[Violation] = deque(maxlen=KEPT)
        self._rows: dict[int, tuple[Effect, ...]] = {}
        self._effects: dict[str, Effect] = {
            "ask": self._ask,
            "raise_marker": self._raise,
            "raise_immediate": self._raise,
            "lower_marker": self._lower,
            "start_wait": self._wait,
            "take_pages": self._take,
            "end_operation": self._end,
            "free_pages": self._end,
            "stage_hold": self._stage,
            "cut_operation": self._cut,
            "orphan_operation": self._orphan,
            "consume_hold": self._drop_hold,
            "release_hold": self._drop_hold,
        }

    def begin(self, key: Key, spent: int) -> None:
        """An attempt was queued, with re-issues already spent by its predecessor."""
        self._books[key] = Watched(spent)

    def step(self, now: int, key: Key, row: Transition, op: int, pages: int) -> None:
        """A row of the prefetch machine was taken, about operation `op` (0: none) and so many host pages."""
        self._now = now
        book = self._books.get(key)
        if book is None:
            self._break("no-residue", key, f"{row.event} after its end")
            return
        effects = self._rows.get(row.row)
        if effects is None:
            effects = tuple(self._effects[name] for name in row.effects if name in self._effects)
            self._rows[row.row] = effects
        for effect in effects:
            effect(key, book, row, op, pages)
        if row.dest not in self._live:
            self._over(key, book, row.dest)
        elif book.marker and row.dest != "missed":
            self._break("marker-once", key, f"in {row.dest} with its marker up")

    def pinned(self, now: int, key: Key, tokens: int) -> None:
        """An anchor of so many tokens was locked for the attempt."""
        self._now = now
        self._pinned += tokens
        book = self._books.get(key)
        if book is None:
            self._break("pin-owned", key, "pinned for an attempt that is over")
            return
        if book.pin >= 0:
            self._break("pin-owned", key, "pinned twice")
        book.pin = tokens
        if self._pinned > self._pin_cap:
            self._break("pin-cap", key, f"{self._pinned} tokens pinned, cap {self._pin_cap}")

    def unpinned(self, now: int, key: Key, tokens: int) -> None:
        """So many tokens were unlocked in the attempt's name."""
        self._now = now
        self._pinned -= tokens
        book = self._books.get(key)
        if book is None or book.pin != tokens:
            held = "no pin" if book is None or book.pin < 0 else f"a pin of {book.pin} tokens"
            self._break("pin-owned", key, f"{tokens} tokens unlocked, held {held}")
        if book is not None:
            book.pin = -1

    def stale(self, now: int, key: Key, op: int) -> None:
        """The answer of operation `op` is about to change an attempt that did not issue it."""
        self._now = now
        self._break(
            "one-in-flight", key, f"changed by the answer of operation {op}, which is not its own (#39318)"
        )

    def orphan_ended(self, now: int, key: Key, op: int, *, freed: bool) -> None:
        """An orphan answered for the last time, and its pages went back or not."""
        self._now = now
        pages = self._pages.pop(op, 0)
        if freed:
            self._used_pages -= pages
        elif pages:
            self._break(
                "conservation", key, f"operation {op} ended and left {pages} host pages owned by nobody"
            )

    def belief(self, now: int, event: str, pool: str, believed: bool) -> None:
        """There was evidence against a page, by this event, and whether it is believed after."""
        self._now = now
        if believed:
            self._break("belief-evidence", None, f"a page of {pool} is still believed after {event}")

    def node(self, now: int, node: Hashable, effects: tuple[str, ...], owner: Hashable) -> None:
        """Effects on a node, in order; `owner` is the load-back concerned."""
        self._now = now
        for effect in effects:
            match effect:
                case "claim":
                    if node in self._claims:
                        self._break(
                            "load-exclusive", None, f"node {node} claimed by {owner} and {self._claims[node]}"
                        )
                    self._claims[node] = owner
                    self._tombstones.discard(node)
                case "unclaim":
                    self._claims.pop(node, None)
                case "free_swa":
                    self._free_swa(node)
                case "free_both":
                    self._free_swa(node)
                    self._tombstones.discard(node)
                case "free_full":
                    self._tombstones.discard(node)

    def _free_swa(self, node: Hashable) -> None:
        if node in self._tombstones:
            self._break("tombstone-once", None, f"the SWA side of node {node} is released again")
        self._tombstones.add(node)

    def _ask(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        if book.op:
            self._break("one-in-flight", key, f"operation {op} issued while {book.op} is in flight")
        if row.event != "issue":
            book.reissues += 1
            if book.reissues > self._max_attempts:
                self._break("attempts-bounded", key, f"re-issue {book.reissues} of {self._max_attempts}")
        if row.event == "sweep" and book.paced and self._now - book.raised < self._interval:
            self._break("paced", key, f"re-issued {self._now - book.raised} passes after its miss")
        book.op = op
        book.asked = True
        book.paced = False

    def _raise(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        if book.marker:
            self._break("marker-once", key, "raised while its marker is up")
        if self._disabled:
            self._break("disabled-inert", key, f"{row.event} raised a marker although retries are off")
        if not book.asked:
            self._break(
                "asked-armed", key, f"{row.event} raised a marker although no question was issued (#40042)"
            )
        book.marker = True
        book.raised = self._now
        book.paced = not (self._immediate and "raise_immediate" in row.effects)
        book.asked = False

    def _lower(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        book.marker = False

    def _wait(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        if self._disabled:
            self._break("disabled-inert", key, "paced although retries are off")

    def _take(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        self._pages[book.op] = pages
        self._used_pages += pages
        if self._host_pages is not None and self._used_pages > self._host_pages:
            self._break("conservation", key, f"{self._used_pages} host pages owned of {self._host_pages}")

    def _end(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        self._used_pages -= self._pages.pop(book.op, 0)
        book.op = 0

    def _stage(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        self._move_to_hold(key, book, pages)
        self._end(key, book, row, op, pages)

    def _cut(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        self._move_to_hold(key, book, pages)
        book.op = 0

    def _move_to_hold(self, key: Key, book: Watched, pages: int) -> None:
        owned = self._pages.get(book.op, 0)
        if pages > owned:
            self._break("conservation", key, f"a hold of {pages} host pages out of {owned} read")
        self._pages[book.op] = owned - pages
        book.hold += pages

    def _orphan(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        book.op = 0

    def _drop_hold(self, key: Key, book: Watched, row: Transition, op: int, pages: int) -> None:
        self._used_pages -= book.hold
        book.hold = 0

    def _over(self, key: Key, book: Watched, state: str) -> None:
        """An attempt ended: it must own nothing."""
        del self._books[key]
        if book.marker:
            self._break("marker-owned", key, f"{state} with its marker up")
        if book.pin >= 0:
            self._break("pin-owned", key, f"{state} with {book.pin} tokens pinned")
        left = [
            f"{count} {what}"
            for what, count in (
                ("marker", int(book.marker)),
                ("operation", int(book.op > 0)),
                ("held pages", book.hold),
                ("pin", int(book.pin >= 0)),
            )
            if count
        ]
        if left:
            self._break("no-residue", key, f"{state} with {', '.join(left)}")

    def _break(self, invariant: str, key: Key | None, message: str) -> None:
        self.counts[invariant] += 1
        self.violations.append(Violation(invariant, self._now, key, message))
        if self.alarm is not None:
            self.alarm()


def watcher(settings: Settings, prefetch: Machine) -> Monitor:
    """A monitor with the limits of these settings."""
    constants = settings.constants
    return Monitor(
        interval=constants.interval,
        max_attempts=constants.max_attempts,
        dense=constants.dense,
        known_hit_immediate=constants.immediate_known_hit,
        pin_cap=settings.pin_cap,
        host_pages=settings.host_pages,
        live=frozenset(prefetch.states) - prefetch.terminal,
    )
