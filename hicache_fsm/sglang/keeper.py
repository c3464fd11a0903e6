"""Runs the ledger of one engine and deals with what it finds, as the mode says."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from . import enforce
from .audit import Auditor
from .ledger import Kind, Ledger, Record, Stay, invariant_of, total
from .modes import InvariantViolation, Mode, Options
from .sink import Audit, Finding, Repair, Sink, Totals
from .view import FILED, EngineView, key_of

LOGGER = logging.getLogger(__name__)
Mend = Callable[[], None]
TOTALS = (Kind.PINNED, Kind.OCCUPANCY)
"""Kinds that the engine counts as a whole, apart from who holds them."""


class Keeper:
    """All methods belong to the scheduler's thread; before ``attach`` they do nothing.

    ``findings`` counts by invariant, ``repairs`` by kind.
    """

    def __init__(self, options: Options, sinks: Sequence[Sink] = ()) -> None:
        self.options = options
        self.ledger: Ledger | None = None
        self.findings: Counter[str] = Counter()
        self.repairs: Counter[Kind] = Counter()
        self.audits = 0
        self.raised = False
        """Whether strict mode has stopped the engine."""
        self.in_pass = False
        """Whether a pass has begun and not ended, as it stays when the engine raises."""
        self.history: Callable[[str], Sequence[str]] = lambda rid: ()
        """The newest events of a request, for a violation."""
        self._sinks = tuple(sinks)
        self._auditor: Auditor | None = None
        self._reported: list[tuple[Finding, Mend | None]] = []
        self._now = 0
        self._audited_at_rest = False

    def attach(self, view: EngineView) -> None:
        """Begin the books of an engine that has just been built."""
        self.ledger = Ledger(view)
        self._auditor = Auditor(self.ledger)

    # ---- what hooks call with their arguments

    def touch_key(self, _owner: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """A method whose first argument is a key or a request id."""
        if self.ledger is not None:
            self.ledger.touch(key)

    def touch_marker(self, retries: Any, rid: str, *_: Any, **__: Any) -> None:
        """0.5.20+: a method that takes a marker down, and is called whether there is one or not."""
        if self.ledger is not None and rid in retries._pending:
            self.ledger.touch(rid)

    def touch_operation(self, _owner: Any, operation: Any, *_: Any, **__: Any) -> None:
        """A method that ends a prefetch, given its operation."""
        if self.ledger is not None:
            self.ledger.note_read(operation)
            self.ledger.touch(self.ledger.view.key_of_operation(operation))

    def touch_leaving(self, _owner: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """A method that ends whatever is filed under a key."""
        if self.ledger is not None:
            self.ledger.note_read(self.ledger.view.live_operation(key))
            self.ledger.touch(key)

    def touch_credit(self, tree: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """A method that the admission scan calls for every request that is ready, loaded or not."""
        if self.ledger is not None and self.ledger.view.collects(tree, key):
            self.ledger.touch(key)

    def polled(self, key: Hashable, operation: Any, ready: bool) -> None:
        """The admission scan has asked whether a prefetch is over, as it does on every pass."""
        if self.ledger is None:
            return
        if ready:
            self.ledger.note_read(operation)
            self.ledger.touch(key)
        else:
            self.ledger.touch_wait(key)

    def touch_load(self, _owner: Any, params: Any, *_: Any, **__: Any) -> None:
        """A method whose first argument carries the request."""
        if self.ledger is not None:
            self.ledger.expect_fill(key_of(params.req))

    def touch_fill(self, _owner: Any, ack_id: int, *_: Any, **__: Any) -> None:
        """A method whose first argument is the id of a copy in flight."""
        if self.ledger is not None:
            self.ledger.touch_fill(ack_id)

    def answered(self, queue: Any, count: int | None) -> None:
        """The first ``count`` operations of an answer queue, None for all, are about to be drained."""
        if self.ledger is not None:
            for operation in head(queue, count):
                self.ledger.touch(self.ledger.view.key_of_operation(operation))

    def acknowledged(self, operations: Iterable[Any]) -> None:
        """Storage reads whose last acknowledgement has been drained."""
        if self.ledger is not None:
            for operation in operations:
                self.ledger.acknowledged(operation)

    def flushed(self) -> None:
        """The engine has replaced all its maps and emptied its pools."""
        if self.ledger is not None:
            self.ledger.in_flight.clear()
            self.ledger.touch_all()

    # ---- what the recorder tells

    def enter(self, request: Any, attempt: int) -> None:
        """An attempt is about to be queued."""
        if self.ledger is not None:
            key = key_of(request)
            if key in self.ledger.records:
                # what an earlier attempt of the id left behind must not pass to this one unseen
                self.ledger.touch(key)
                self._handle(self.ledger.settle(self._now))
            self.ledger.enter(key, attempt)

    def leave(self, request: Any, stay: Stay, exit_: str) -> None:
        """An attempt has left the queue, or a running request its batch."""
        if self.ledger is not None:
            self.ledger.leave(key_of(request), stay, exit_, self._now)

    def report(self, finding: Finding, mend: Mend | None = None) -> None:
        """A finding of a hook; dealt with when the next pass begins. ``mend`` is what ``enforce`` does."""
        self._reported.append((finding, mend))

    # ---- passes

    def pass_over(self, now: int, unseen: Callable[[], Iterable[Any]]) -> None:
        """Deal with all that happened in pass ``now``, which is over, and since.

        ``unseen`` lists the requests that the recorder believes queued and the engine does not know. Raises
        ``InvariantViolation`` in strict mode.
        """
        if self.ledger is None:
            return
        self._now = now
        if not self.ledger.quiet or self._reported:
            self._audited_at_rest = False
            self._deal()
            for sink in self._sinks:
                sink.totals(now, self.totals())
        period = self.options.audit_passes
        if period and now and now % period == 0:
            self.audit("period", unseen)
        self._now = now + 1

    @property
    def rested(self) -> bool:
        """Whether an engine at rest was audited and nothing has changed since, or there is none."""
        return self.ledger is None or (self._audited_at_rest and self.ledger.quiet)

    def idle(self, unseen: Callable[[], Iterable[Any]]) -> None:
        """The engine found nothing to do: audit it once per rest."""
        if self.ledger is None or self.rested:
            return
        if self.ledger.view.at_rest:
            self.audit("idle", unseen)
            self._audited_at_rest = True

    def audit(self, why: str, unseen: Callable[[], Iterable[Any]]) -> Audit:
        """Compare the books with every structure of the engine. Raises ``InvariantViolation`` in strict mode."""
        assert self.ledger is not None
        assert self._auditor is not None
        began = time.perf_counter()
        for request in unseen():
            self.ledger.leave(key_of(request), Stay.GONE, "an exit that no hook saw", self._now)
        self.ledger.touch_all()
        found = [*self.ledger.settle(self._now), *self._auditor.run(self._now)]
        reported, self._reported = self._reported, []
        found += [finding for finding, _ in reported]
        audit = Audit(self._now, why, tuple(found), time.perf_counter() - began)
        self.audits += 1
        self._handle(found, {id(finding): mend for finding, mend in reported})
        if self.options.mode is Mode.ENFORCE:
            self._repair_all()
        for sink in self._sinks:
            sink.audit(audit)
        return audit

    def leftovers(self) -> list[str]:
        """What is held now and may not be, one line each; for the end of a run."""
        if self.ledger is None:
            return []
        lines = [
            f"{record.name}: {kind} {record.held[kind]} since pass {record.since[kind]}"
            for record in self.ledger.records.values()
            for kind in record.leftovers()
        ]
        lines += [
            f"{kind}: {surplus} tokens too many" for kind, surplus in self.ledger.drift().items() if surplus
        ]
        return lines

    def totals(self) -> Totals:
        """What the engine holds as it counts itself."""
        assert self.ledger is not None
        view = self.ledger.view
        counts = dict(zip(FILED, view.counts(), strict=True))
        return Totals(
            queued=len(view.scheduler.waiting_queue),
            running=len(view.scheduler.running_batch.reqs),
            markers=counts["marker"],
            entries=counts["entry"],
            parked=view.parked_count,
            holds=counts["hold"],
            pinned_tokens=view.pinned_tokens,
            pin_cap_tokens=view.pin_cap_tokens,
            occupied_tokens=view.occupied_tokens,
        )

    # ---- dealing with it

    def _deal(self) -> None:
        assert self.ledger is not None
        found = self.ledger.settle(self._now)
        reported, self._reported = self._reported, []
        found += [finding for finding, _ in reported]
        if found:
            self._handle(found, {id(finding): mend for finding, mend in reported})

    def _handle(self, found: Sequence[Finding], mends: dict[int, Mend | None] | None = None) -> None:
        for finding in found:
            self.findings[finding.invariant] += 1
            LOGGER.warning("hicache-fsm %s", finding)
            for sink in self._sinks:
                sink.violation(finding)
        judged = [finding for finding in found if finding.invariant not in self.options.allow]
        if self.options.mode is Mode.ENFORCE:
            for finding in judged:
                self._repair(finding, (mends or {}).get(id(finding)))
        elif self.options.mode is Mode.STRICT and judged:
            first, self.raised = judged[0], True
            raise InvariantViolation(first, self.history(first.rid) if first.rid else (), judged[1:])

    def _repair(self, finding: Finding, mend: Mend | None) -> None:
        assert self.ledger is not None
        assert self._auditor is not None
        kind = Kind(finding.kind)
        if mend is not None:
            mend()
            self._repaired(kind, finding.rid, finding.attempt, finding.amount)
        elif finding.rid is not None:
            for record in self.ledger.of(finding.rid):
                self._give_back(record)
        elif finding.invariant == "conservation" and kind in TOTALS:
            self._mend_total(kind)
        elif kind is Kind.HOST_PAGES:
            self._free_lost()

    def _repair_all(self) -> None:
        """Whatever is left over, told long ago or not: an earlier repair may have failed."""
        assert self.ledger is not None
        for record in list(self.ledger.records.values()):
            if any(invariant_of(kind) not in self.options.allow for kind in record.leftovers()):
                self._give_back(record)
        if "conservation" not in self.options.allow:
            for kind in TOTALS:
                self._mend_total(kind)
            self._free_lost()

    def _give_back(self, record: Record) -> None:
        assert self.ledger is not None
        for kind, amount in enforce.give_back(self.ledger, record, self._now):
            self._repaired(kind, record.rid, record.attempt, amount)

    def _mend_total(self, kind: Kind) -> None:
        assert self.ledger is not None
        if surplus := enforce.mend_totals(self.ledger, kind):
            self._repaired(kind, None, None, surplus)

    def _free_lost(self) -> None:
        assert self._auditor is not None
        if freed := self._auditor.free_lost():
            self._repaired(Kind.HOST_PAGES, None, None, freed)

    def _repaired(self, kind: Kind, rid: str | None, attempt: int | None, amount: int) -> None:
        self.repairs[kind] += 1
        whose = "" if rid is None else f" of {rid}" if attempt is None else f" of {rid} attempt {attempt}"
        repair = Repair(kind, self._now, rid, attempt, amount, enforce.DONE[kind].format(amount) + whose)
        LOGGER.warning("hicache-fsm repair: %s", repair)
        for sink in self._sinks:
            sink.repair(repair)

    # ---- beliefs

    def write_failed(self, pool: Any, pages: list[str], stored_pages: int) -> None:
        """A write ended short and the engine believes it whole; ``pages`` are hashes.

        With several ranks nothing is mended: all must believe the same, and only one may have failed.
        """
        view = self.ledger.view if self.ledger is not None else None
        if view is None:
            return
        lost = len(pages) - stored_pages
        message = f"{lost} pages of pool {pool} are believed stored after a write that failed"
        finding = total("belief-evidence", Kind.BELIEF, lost, self._now, message)
        alone = view.ranks == 1
        self.report(
            finding, (lambda: enforce.lower_beliefs(view, pool, pages, stored_pages)) if alone else None
        )

    def detached(self) -> None:
        """The storage is gone; what was believed of it says nothing about the next one."""
        view = self.ledger.view if self.ledger is not None else None
        if view is None:
            return
        self.flushed()
        if not (pages := view.believed_pages()):
            return
        message = f"{pages} pages are still believed stored after their storage was detached"
        finding = total("belief-evidence", Kind.BELIEF, pages, self._now, message)
        self.report(finding, lambda: enforce.forget_beliefs(view))


def head(queue: Any, count: int | None) -> list[Any]:
    """The first ``count`` items of a queue, None for all, without taking them."""
    if count == 0 or not queue.queue:
        return []
    with queue.mutex:
        items = list(queue.queue)
    return items if count is None else items[:count]
