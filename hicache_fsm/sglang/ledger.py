"""Who owns what in a live engine, kept in step with what the hooks note.

A hook only appends a note of the key it is about. ``settle`` then reads what the engine files under the noted keys,
once however often they were noted, so the cost follows what changed and not what is queued: of whoever has left the
queue at each judgement, of whoever is in it only where the totals are compared with what the engine counts itself.
They differ if something changed that no hook saw.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .kinds import IN_TOKENS, Kind, invariant_of, total
from .sink import Finding
from .view import FILED, EngineView, rid_of

PAST = 65_536
"""Request ids whose last attempt is remembered once it is clean; older ones start from attempt 0 again."""
Note = tuple[Hashable, tuple[str, ...], int]
"""A key or request id whose holdings may have changed, the kinds it may have got, and the pass."""
SUSPECTS = 4
"""Attempts that a finding about a total names."""
NOBODY: frozenset[Any] = frozenset()


UNCOUNTED = FILED.index(Kind.WAIT)
"""The admission scan opens wait budgets on any pass, and no hook follows it there: they are read with their owner."""


@dataclass(slots=True)
class Record:
    """One owner: an attempt, or a key of which none was seen. ``since`` and ``left_pass`` are passes."""

    key: Hashable
    rid: str
    attempt: int | None = None
    queued: bool = False
    """Whether it is in the waiting queue: only then may it hold anything but a copy in flight."""
    exit: str | None = None
    left_pass: int | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    """By kind; one that was noted and not yet read is in here too."""
    occupied: int = 0
    """Host tokens counted against prefetches on its behalf."""
    fills: frozenset[int] = NOBODY
    """Acknowledgement ids of its copies in flight."""
    told: frozenset[str] = NOBODY
    """What has been reported since its owner left."""
    older: Record | None = None
    """The attempt before it of the same request id, if that left something under a key of its own."""
    noted: bool = False
    """Whether it is to be read."""

    @property
    def name(self) -> str:
        """As a log line names it."""
        return self.rid if self.attempt is None else f"{self.rid} attempt {self.attempt}"

    def leftovers(self) -> list[Kind]:
        """What it holds and may not."""
        if self.queued or not self.held:
            return []
        # a copy ends by its own acknowledgement, whatever becomes of the request
        return [Kind(kind) for kind in self.held if kind != "fill"]


class Ledger:
    """The books of one engine. All methods belong to the scheduler's thread.

    ``notes`` is the list that hooks append to; it is emptied here.
    """

    def __init__(self, view: EngineView, notes: list[Note]) -> None:
        self.view = view
        self._notes = notes
        self.records: dict[str, Record] = {}
        """The newest of each request id that is queued, was noted, or holds something."""
        self.resyncs = 0
        """How often a total showed a change that no hook had seen."""
        self.counts: dict[str, int] = dict.fromkeys(FILED, 0)
        """Owners by kind, in the order of ``FILED``."""
        self.pinned_tokens = 0
        self.occupied_tokens = 0
        self.in_flight: dict[int, Any] = {}
        """Storage reads that go on although their prefetch is over, by id: they own the pages not yet read."""
        self._left: list[Record] = []
        """What to judge: noted, and not queued."""
        self._moved: list[Record] = []
        """What to read where totals are compared: noted while it was queued."""
        self._past: dict[str, tuple[int, str | None, int | None]] = {}
        """Attempt, exit and its pass of those that came and went clean."""
        self._fill_keys: dict[int, Hashable] = {}
        self._totals = (0, 0, False)
        """As judged last: surplus of pinned and of occupied tokens, whether the pins are over their cap."""
        self._drift: dict[Kind, int] = {Kind.PINNED: 0, Kind.OCCUPANCY: 0}
        self._suspects: list[Record] = []
        """The first that changed since totals were compared."""
        self._gap: list[int] = []
        self._cap_told = False

    # ---- attempts

    def enter(self, key: Hashable) -> Record:
        """An attempt enters the queue; settle what an earlier one left first, or it passes to this one."""
        rid = rid_of(key)
        before = self.records.get(rid)
        number = self._past.pop(rid, (-1,))[0] if before is None else before.attempt
        number = 0 if number is None else number + 1
        if before is not None and (before.key == key or isinstance(before.key, str)):
            # an id alone is the marker's, which passes to the newest attempt
            record, record.key = before, key
            record.attempt, record.queued, record.exit, record.left_pass = number, True, None, None
            record.told = NOBODY
        else:
            record = self.records[rid] = Record(key, rid, number, queued=True)
            if before is not None:
                # one that is still to be read stays in its chain until then
                record.older = before if before.noted or before.held or before.fills else before.older
        record.noted = True
        self._moved.append(record)
        return record

    def leave(self, rid: str, exit_: str, now: int) -> None:
        """An attempt leaves the queue; nothing where none of that id is queued."""
        record = self.records.get(rid)
        if record is not None and record.queued:
            record.queued = False
            record.exit, record.left_pass = exit_, now
            record.noted = True
            self._left.append(record)

    def queued(self) -> list[Record]:
        """Every attempt believed to be in the queue."""
        return [record for record in self.records.values() if record.queued]

    def of(self, rid: str) -> list[Record]:
        """The records of a request id, the newest first."""
        found, record = [], self.records.get(rid)
        while record is not None:
            found.append(record)
            record = record.older
        return found

    def all(self) -> list[Record]:
        """Every record."""
        return [record for rid in self.records for record in self.of(rid)]

    def _record(self, key: Hashable) -> Record:
        """The record of a key, or of the newest attempt where the key is a request id."""
        rid = rid_of(key)
        newest = self.records.get(rid)
        if newest is None:
            number, exit_, left = self._past.pop(rid, (None, None, None))
            newest = self.records[rid] = Record(key, rid, number, exit=exit_, left_pass=left)
        if newest.key is key or isinstance(key, str):
            return newest
        if isinstance(newest.key, str):
            newest.key = key
        record = newest
        while record.key != key:
            if record.older is None:
                record.older = Record(key, rid)
            record = record.older
        return record

    def _forget(self, record: Record) -> None:
        newest = self.records[record.rid]
        if newest is not record:
            before = newest
            while before.older is not record:
                assert before.older is not None
                before = before.older
            before.older = record.older
            if newest.queued or newest.noted or newest.held or newest.fills:
                return
        # the newest numbers the next one, so it stays as long as any older one does
        if newest.older is None:
            del self.records[newest.rid]
            if newest.attempt is not None:
                self._past[newest.rid] = (newest.attempt, newest.exit, newest.left_pass)
                if len(self._past) > PAST:
                    del self._past[next(iter(self._past))]

    # ---- noting

    def _post(self) -> None:
        """Look up what the notes are about, and date the kinds that it may have got."""
        records = self.records
        for key, kinds, now in self._notes:
            # most keys are those of the newest attempt, found by the id without hashing the handle
            plain = type(key) is str
            record = records.get(key if plain else key.rid)  # type: ignore[attr-defined, arg-type]
            if record is None or (record.key is not key and not plain):
                record = self._record(key)
            for kind in kinds:
                if kind not in record.held:
                    record.since[kind] = now
            if not record.noted:
                record.noted = True
                (self._moved if record.queued else self._left).append(record)
        self._notes.clear()

    def expect_fill(self, key: Hashable, now: int) -> None:
        """The hold of a key may be about to become a copy to the device."""
        self._notes.append((key, ("fill",), now))
        hold = self.view.hold(key)
        if hold is not None:
            self._note_fill(self._record(key), self.view.fill_id(hold))

    def _note_fill(self, record: Record, ack_id: int) -> None:
        if ack_id not in record.fills:
            record.fills |= {ack_id}
            self._fill_keys[ack_id] = record.key

    def note_fill(self, ack_id: int, now: int) -> None:
        """A copy to the device may have ended."""
        key = self._fill_keys.get(ack_id)
        if key is not None:
            self._notes.append((key, (), now))

    def note_read(self, operation: Any) -> None:
        """A prefetch is about to end: its operation keeps what it has not yet acknowledged."""
        if operation is not None and operation.host_indices is not None:
            self.in_flight[operation.id] = operation

    def note_all(self, now: int) -> None:
        """The engine's maps were replaced, or are to be walked."""
        keys = (*(record.key for record in self.all()), *self.view.filed_keys())
        self._notes += [(key, (), now) for key in keys]

    # ---- settling

    @property
    def quiet(self) -> bool:
        """Whether nothing was noted since the last settling."""
        return not (self._notes or self._left or self._moved)

    def settle(self, now: int, *, totals: bool = True) -> list[Finding]:
        """Read whoever was noted and has left, and judge it: what is new and wrong.

        With ``totals`` read whoever else was noted too, and judge what the engine counts itself.
        """
        self._post()
        if not totals:
            return self._settle_left(now)
        found = self._settle_all(now)
        gap = self._count_gap()
        if gap and gap != self._gap:
            self.resyncs += 1
            self.note_all(now)
            self._post()
            found += self._settle_all(now)
            gap = self._count_gap()
        self._gap = gap
        pinned, cap, occupied = self.view.totals()
        surpluses = (pinned - self.pinned_tokens, occupied - self.occupied_tokens, pinned > cap)
        if surpluses != self._totals:
            self._totals = surpluses
            found += self._judge_totals(now)
        self._suspects.clear()
        return found

    def settle_id(self, rid: str, now: int) -> list[Finding]:
        """Read and judge one request id alone; what is noted stays noted."""
        self._post()
        found: list[Finding] = []
        for record in self.of(rid):
            self._sync(record, now)
            found += self._judge(record, now)
            if not (record.held or record.noted):
                record.noted = True
                self._left.append(record)
        return found

    def _settle_all(self, now: int) -> list[Finding]:
        moved, self._moved = self._moved, []
        self._left += moved
        return self._settle_left(now)

    def _settle_left(self, now: int) -> list[Finding]:
        found: list[Finding] = []
        left, self._left = self._left, []
        for record in left:
            if not record.noted:
                continue
            record.noted = False
            self._sync(record, now)
            if not record.queued:
                if record.held:
                    found += self._judge(record, now)
                elif not record.fills:
                    self._forget(record)
        return found

    def read(self, record: Record, now: int) -> Mapping[str, int]:
        """What a record holds at this moment."""
        self._sync(record, now)
        return record.held

    def _sync(self, record: Record, now: int) -> None:
        before = record.held
        held, occupied = self.view.holdings(record.key, record.rid)
        if "marker" in held and self.records.get(record.rid) is not record:
            del held["marker"]  # filed under the request id: it is the newest attempt's
        if record.fills or "hold" in held:
            occupied += self._sync_fills(record, held)
        if held == before and occupied == record.occupied:
            return
        if len(self._suspects) < SUSPECTS:
            self._suspects.append(record)
        self.pinned_tokens += held.get("pin", 0) - before.get("pin", 0)
        self.occupied_tokens += occupied - record.occupied
        for kind in held:
            if kind not in before:
                self.counts[kind] += 1
                record.since.setdefault(kind, now)
        for kind in before:
            if kind not in held:
                self.counts[kind] -= 1
                record.since.pop(kind, None)
                record.told -= {kind}
        record.held, record.occupied = held, occupied

    def _sync_fills(self, record: Record, held: dict[str, int]) -> int:
        view = self.view
        hold = view.hold(record.key)
        if hold is not None:
            self._note_fill(record, view.fill_id(hold))
        occupied = 0
        for ack_id in record.fills:
            fill = view.fill(ack_id)
            if fill is not None:
                held["fill"] = held.get("fill", 0) + int(fill.num_tokens)
                occupied += int(fill.occupied_tokens)
            elif hold is None or view.fill_id(hold) != ack_id:
                record.fills -= {ack_id}
                self._fill_keys.pop(ack_id, None)
        return occupied

    def _count_gap(self) -> list[int]:
        """By how much each count of the engine differs from the books; empty where none does."""
        engine, books = self.view.counts(), list(self.counts.values())
        engine[UNCOUNTED] = books[UNCOUNTED]
        return [] if engine == books else [had - has for had, has in zip(engine, books, strict=True)]

    # ---- judging

    def _judge(self, record: Record, now: int) -> Iterator[Finding]:
        for kind in record.leftovers():
            if kind not in record.told:
                record.told |= {kind}
                yield self._leftover(record, kind, now)

    def _leftover(self, record: Record, kind: Kind, now: int) -> Finding:
        amount, since = record.held[kind], record.since[kind]
        article = "an" if kind is Kind.ENTRY else "a"
        size = f" of {amount} tokens" if kind in IN_TOKENS else ""
        if kind in (Kind.ENTRY, Kind.HOLD):
            size += self.view.beside(record.key)
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
        suspects = [record.name for record in self._suspects]
        if suspects:
            message += f"; changed meanwhile: {', '.join(suspects)}"
        return total("conservation", kind, surplus, now, message)
