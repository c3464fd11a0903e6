"""Who owns what in a live engine, kept in step with what the hooks touch.

A hook only notes the key it is about; ``settle`` then reads what the engine files under each noted key, so a
pass costs in proportion to what changed and not to what is queued. Totals that the engine keeps itself are
compared after each settling: they differ if something changed that no hook saw.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .sink import Finding
from .view import FILED, EngineView, rid_of


class Kind(StrEnum):
    """What can be owned. The first eight are filed under a request, the others belong to the engine."""

    MARKER = "marker"
    """An armed re-issue."""
    ENTRY = "entry"
    """A prefetch in flight, in tokens asked."""
    PIN = "pin"
    """A lock on the device anchor, in tokens."""
    CONTEXT = "context"
    """The prefix that a fetched span is spliced to."""
    WAIT = "wait"
    """A wait budget of the timeout policy."""
    HOLD = "hold"
    """A staged hold, in tokens."""
    CREDIT = "credit"
    """Tokens loaded from storage that admission has not collected."""
    FILL = "fill"
    """A copy from a hold to the device in flight, in tokens."""
    OCCUPANCY = "occupancy"
    """Host tokens counted against prefetches."""
    PINNED = "pinned"
    """Tokens that all pins together are counted with."""
    HOST_PAGES = "host_pages"
    """Host memory, in tokens."""
    DEVICE = "device"
    """Device memory or locks on it, in tokens."""
    BELIEF = "belief"
    """Pages believed stored, against the evidence."""


class Stay(StrEnum):
    """Where the owner is."""

    QUEUED = "queued"
    RUNNING = "running"
    GONE = "gone"


IN_TOKENS = frozenset({Kind.ENTRY, Kind.PIN, Kind.HOLD, Kind.CREDIT, Kind.FILL})


def invariant_of(kind: Kind) -> str:
    """The invariant that a leftover of a kind breaks."""
    return {Kind.MARKER: "marker-owned", Kind.PIN: "pin-owned"}.get(kind, "no-residue")


@dataclass(slots=True)
class Record:
    """One owner: the newest attempt of a key. ``since`` and ``left_pass`` are passes."""

    key: Hashable
    rid: str
    attempt: int | None = None
    stay: Stay = Stay.GONE
    exit: str | None = None
    left_pass: int | None = None
    held: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    occupied: int = 0
    """Host tokens counted against prefetches on its behalf."""
    fills: set[int] = field(default_factory=set)
    """Acknowledgement ids of its copies in flight."""
    told: set[str] = field(default_factory=set)
    """What has been reported since its owner left."""

    @property
    def name(self) -> str:
        """As a log line names it."""
        return self.rid if self.attempt is None else f"{self.rid} attempt {self.attempt}"

    def leftovers(self) -> list[Kind]:
        """What it holds and may not."""
        if self.stay is Stay.QUEUED or not self.held:
            return []
        # a copy ends by its own acknowledgement, whatever becomes of the request
        return [Kind(kind) for kind in self.held if kind != "fill"]


class Ledger:
    """The books of one engine. All methods belong to the scheduler's thread."""

    def __init__(self, view: EngineView) -> None:
        self.view = view
        self.records: dict[Hashable, Record] = {}
        self.resyncs = 0
        """How often a total showed a change that no hook had seen."""
        self.counts: dict[str, int] = dict.fromkeys(FILED, 0)
        """Owners by kind, in the order of ``FILED``."""
        self.pinned_tokens = 0
        self.occupied_tokens = 0
        self.in_flight: dict[int, Any] = {}
        """Storage reads that go on although their prefetch is over, by id: they own the pages not yet read."""
        self._touched: list[Hashable] = []
        self.touch: Callable[[Hashable], None] = self._touched.append
        """What is filed under a key, or under a request id, may have changed; hashing waits for ``settle``."""
        self._keys: dict[str, list[Hashable]] = {}
        self._fill_keys: dict[int, Hashable] = {}
        self._totals = (0, 0, False)
        """As judged last: surplus of pinned and of occupied tokens, whether the pins are over their cap."""
        self._drift: dict[Kind, int] = {Kind.PINNED: 0, Kind.OCCUPANCY: 0}
        self._changed: list[Record] = []
        self._gap: list[int] = []
        self._cap_told = False

    # ---- noting

    def expect_fill(self, key: Hashable) -> None:
        """The hold of a key may be about to become a copy to the device."""
        self.touch(key)
        hold = self.view.hold(key)
        if hold is not None:
            self._note_fill(self._record(key), self.view.fill_id(hold))

    def _note_fill(self, record: Record, ack_id: int) -> None:
        record.fills.add(ack_id)
        self._fill_keys[ack_id] = record.key

    def touch_wait(self, key: Hashable) -> None:
        """A wait budget may have been opened for a key."""
        if self.view.waits_for(key):
            record = self.records.get(key)
            if record is None or Kind.WAIT not in record.held:
                self.touch(key)

    def note_read(self, operation: Any) -> None:
        """A prefetch is about to end: its operation keeps what it has not yet acknowledged."""
        if operation is not None and operation.host_indices is not None:
            self.in_flight[operation.id] = operation

    def touch_fill(self, ack_id: int) -> None:
        """A copy to the device may have ended."""
        key = self._fill_keys.get(ack_id)
        if key is not None:
            self.touch(key)

    def touch_all(self) -> None:
        """The engine's maps were replaced or walked."""
        self._touched += self.records
        self._touched += self.view.filed_keys()

    def acknowledged(self, operation: Any) -> None:
        """A storage read was acknowledged for the last time: it owns nothing any more."""
        self.in_flight.pop(operation.id, None)
        self.touch(self.view.key_of_operation(operation))

    def enter(self, key: Hashable, attempt: int) -> None:
        """An attempt enters the queue; settle what an earlier one left first, or it passes to this one."""
        record = self._record(key)
        record.attempt, record.stay = attempt, Stay.QUEUED
        record.exit = record.left_pass = None
        record.told.clear()
        self.touch(key)

    def of(self, rid: str) -> list[Record]:
        """The records of a request id, one a key."""
        return [self.records[key] for key in self._keys.get(rid, ())]

    def leave(self, key: Hashable, stay: Stay, exit_: str, now: int) -> None:
        """An attempt leaves the queue or the batch."""
        record = self._record(key)
        if record.stay is Stay.QUEUED or record.exit is None:
            record.exit, record.left_pass = exit_, now
        record.stay = stay
        self.touch(key)

    def _record(self, key: Hashable) -> Record:
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = Record(key, rid_of(key))
            self._keys.setdefault(record.rid, []).append(key)
        return record

    # ---- settling

    @property
    def quiet(self) -> bool:
        """Whether nothing was touched since the last settling."""
        return not self._touched

    def settle(self, now: int) -> list[Finding]:
        """Read what was touched and judge it, and the totals: what is new and wrong."""
        self._changed = []
        found = self._settle_touched(now)
        gap = self._count_gap()
        if gap and gap != self._gap:
            self.resyncs += 1
            self.touch_all()
            found += self._settle_touched(now)
            gap = self._count_gap()
        self._gap = gap
        pinned, cap, occupied = self.view.totals()
        totals = (pinned - self.pinned_tokens, occupied - self.occupied_tokens, pinned > cap)
        if totals != self._totals:
            self._totals = totals
            found += self._judge_totals(now)
        return found

    def _settle_touched(self, now: int) -> list[Finding]:
        found: list[Finding] = []
        for record in self._touched_records():
            self._sync(record, now)
            if record.stay is not Stay.QUEUED:
                if record.held:
                    found += self._judge(record, now)
                elif record.stay is Stay.GONE:
                    self._forget(record)
        return found

    def _touched_records(self) -> Iterable[Record]:
        """Each once, and touched no more: a request id stands for every key that carries it."""
        # a key is mostly touched as the same object, whose identity costs less than its hash
        touched = {id(key): key for key in self._touched}
        self._touched.clear()
        records: dict[int, Record] = {}
        for one in touched.values():
            keys = self._keys.get(one) if isinstance(one, str) else None
            for key in (one,) if keys is None else keys:
                record = self.records.get(key) or self._record(key)
                records[id(record)] = record
        return records.values()

    def read(self, record: Record, now: int) -> dict[str, int]:
        """What a record holds at this moment."""
        self._sync(record, now)
        return record.held

    def _forget(self, record: Record) -> None:
        del self.records[record.key]
        keys = self._keys[record.rid]
        keys.remove(record.key)
        if not keys:
            del self._keys[record.rid]

    def _sync(self, record: Record, now: int) -> None:
        before = record.held
        held, occupied = self.view.holdings(record.key, record.rid)
        if "marker" in held and self._keys[record.rid][-1] is not record.key:
            del held["marker"]  # filed under the request id: it is the newest attempt's
        if record.fills or "hold" in held:
            occupied += self._sync_fills(record, held)
        if held == before and occupied == record.occupied:
            return
        self._changed.append(record)
        self.pinned_tokens += held.get("pin", 0) - before.get("pin", 0)
        self.occupied_tokens += occupied - record.occupied
        for kind in held:
            if kind not in before:
                self.counts[kind] += 1
                record.since[kind] = now
        for kind in before:
            if kind not in held:
                self.counts[kind] -= 1
                record.since.pop(kind, None)
                record.told.discard(kind)
        record.held, record.occupied = held, occupied

    def _sync_fills(self, record: Record, held: dict[str, int]) -> int:
        view = self.view
        hold = view.hold(record.key)
        if hold is not None:
            self._note_fill(record, view.fill_id(hold))
        occupied = 0
        for ack_id in tuple(record.fills):
            fill = view.fill(ack_id)
            if fill is not None:
                held["fill"] = held.get("fill", 0) + int(fill.num_tokens)
                occupied += int(fill.occupied_tokens)
            elif hold is None or view.fill_id(hold) != ack_id:
                record.fills.discard(ack_id)
                self._fill_keys.pop(ack_id, None)
        return occupied

    def _count_gap(self) -> list[int]:
        """By how much each count of the engine differs from the books; empty where none does."""
        engine, books = self.view.counts(), list(self.counts.values())
        return [] if engine == books else [had - has for had, has in zip(engine, books, strict=True)]

    # ---- judging

    def _judge(self, record: Record, now: int) -> Iterator[Finding]:
        for kind in record.leftovers():
            if kind not in record.told:
                record.told.add(kind)
                yield self._leftover(record, kind, now)

    @staticmethod
    def _leftover(record: Record, kind: Kind, now: int) -> Finding:
        amount, since = record.held[kind], record.since[kind]
        article = "an" if kind is Kind.ENTRY else "a"
        size = f" of {amount} tokens" if kind in IN_TOKENS else ""
        if record.exit is None:
            left = "no attempt of that id was seen"
        else:
            left = f"it left by {record.exit} in pass {record.left_pass}"
        return Finding(
            invariant=invariant_of(kind),
            kind=kind,
            pass_=now,
            rid=record.rid,
            attempt=record.attempt,
            amount=amount,
            since_pass=since,
            left_pass=record.left_pass,
            exit=record.exit,
            message=f"{record.name} still holds {article} {kind}{size} since pass {since}; {left}",
        )

    def drift(self) -> dict[Kind, int]:
        """By how much the engine's own totals exceed what the owners hold, in tokens."""
        return {
            Kind.PINNED: self.view.pinned_tokens - self.pinned_tokens,
            Kind.OCCUPANCY: self.view.occupied_tokens - self.occupied_tokens,
        }

    def _judge_totals(self, now: int) -> Iterator[Finding]:
        drift, over = self.drift(), self.view.pinned_tokens > self.view.pin_cap_tokens
        before, self._drift = self._drift, drift
        for kind, surplus in drift.items():
            if surplus and surplus != before[kind]:
                yield self._drifted(kind, surplus, now)
        if over and not self._cap_told:
            message = f"{self.view.pinned_tokens} tokens pinned, cap {self.view.pin_cap_tokens}"
            yield total("pin-cap", Kind.PINNED, self.view.pinned_tokens, now, message)
        self._cap_told = over

    def _drifted(self, kind: Kind, surplus: int, now: int) -> Finding:
        counted, owned = (
            (self.view.pinned_tokens, self.pinned_tokens)
            if kind is Kind.PINNED
            else (self.view.occupied_tokens, self.occupied_tokens)
        )
        message = f"{counted} tokens counted as {kind}, {owned} owned"
        suspects = [record.name for record in self._changed[:4]]
        if suspects:
            message += f"; changed in this pass: {', '.join(suspects)}"
        return total("conservation", kind, surplus, now, message)


def total(invariant: str, kind: Kind, amount: int, now: int, message: str) -> Finding:
    """A finding about the engine as a whole."""
    return Finding(
        invariant=invariant,
        kind=kind,
        pass_=now,
        rid=None,
        attempt=None,
        amount=amount,
        since_pass=now,
        left_pass=None,
        exit=None,
        message=message,
    )
