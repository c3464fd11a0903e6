"""Runs the ledger of one engine and deals with what it finds, as the mode says."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from . import enforce
from .audit import Auditor
from .kinds import Kind, invariant_of, total
from .ledger import Ledger, Note, Record
from .modes import InvariantViolation, Mode, Options
from .sink import Audit, Finding, Repair, Sink, Totals
from .view import FILED, EngineView, key_of

LOGGER = logging.getLogger(__name__)
Mend = Callable[[], None]
TOTALS = (Kind.PINNED, Kind.OCCUPANCY)
"""Kinds that the engine counts as a whole, apart from who holds them."""
TOTALS_EVERY = 8
"""Judgements between two that compare the totals, where not each pass has one."""
UNSEEN = "an exit that no hook saw"


class Keeper:
    """All methods belong to the scheduler's thread; before ``attach`` they do nothing.

    ``findings`` counts by invariant, ``repairs`` by kind.
    """

    def __init__(self, options: Options, sinks: Sequence[Sink] = ()) -> None:
        self.options = options
        self.ledger: Ledger | None = None
        self.notes: list[Note] = []
        """What hooks append to; the ledger empties it."""
        self.now = 0
        """Scheduling passes begun."""
        self.findings: Counter[str] = Counter()
        self.repairs: Counter[Kind] = Counter()
        self.audits = 0
        self.raised = False
        """Whether strict mode has stopped the engine."""
        self.in_pass = False
        """Whether a pass has begun and not ended, as it stays when the engine raises."""
        self.history: Callable[[str], Sequence[str]] = lambda rid: ()
        """The newest events of a request, for a violation."""
        self.lost: Callable[[str], object] = lambda rid: None
        """Hears of a request whose exit no hook saw."""
        self._sinks = tuple(sinks)
        self._auditor: Auditor | None = None
        self._reported: list[tuple[Finding, Mend | None]] = []
        self._due = 0
        """The pass after which there may be something to do."""
        self._judgements = 0
        self._audited_at_rest = False

    def attach(self, view: EngineView) -> None:
        """Begin the books of an engine that has just been built."""
        self.notes.clear()
        self.ledger = Ledger(view, self.notes)
        self._auditor = Auditor(self.ledger)

    # ---- what hooks tell

    def enter(self, request: Any) -> None:
        """An attempt is about to be queued."""
        if self.ledger is not None:
            # what an earlier attempt of the id left behind must not pass to this one unseen
            self._handle(self.ledger.settle_id(request.rid, self.now))
            self.ledger.enter(key_of(request))

    def report(self, finding: Finding, mend: Mend | None = None) -> None:
        """A finding of a hook; dealt with at the next judgement. ``mend`` is what ``enforce`` does."""
        self._reported.append((finding, mend))

    def flushed(self) -> None:
        """The engine has replaced all its maps and emptied its pools."""
        if self.ledger is not None:
            self.ledger.in_flight.clear()
            self.ledger.note_all(self.now)

    # ---- passes

    def pass_begins(self, *_: Any, **__: Any) -> bool:
        """Begin a pass; where it is due, deal first with all that happened before it.

        Raises ``InvariantViolation`` in strict mode.
        """
        if self.now >= self._due:
            self._wake()
        self.now += 1
        self.in_pass = True
        return True

    def pass_ends(self, _began: bool, _plan: Any) -> None:
        """The engine knows what to run."""
        self.in_pass = False

    def _wake(self) -> None:
        patience, period = self.options.patience, self.options.audit_passes
        self._due = self.now + patience
        if self.ledger is None:
            # a storage attached later is asked, too, and nobody reads what hooks note of it
            self.notes.clear()
            return
        if self._reported or not self.ledger.quiet:
            self._judge()
        if period:
            if self.now and self.now % period == 0:
                self.audit("period")
            self._due = min(self._due, self.now - self.now % period + period)

    def change(self, options: Options) -> None:
        """Go on with other settings."""
        self.options, self._due = options, 0

    def _judge(self) -> None:
        self._audited_at_rest = False
        self._judgements += 1
        self._deal(totals=self.options.patience == 1 or self._judgements % TOTALS_EVERY == 0)
        self._tell_totals()

    def _tell_totals(self) -> None:
        if self._sinks:
            totals = self.totals()
            for sink in self._sinks:
                sink.totals(self.now, totals)

    def idle(self, *_: Any, **__: Any) -> None:
        """The engine found nothing to do: audit it once per rest."""
        if self.ledger is None or (self._audited_at_rest and self.ledger.quiet):
            return
        view = self.ledger.view
        if not view.scheduler.waiting_queue and view.at_rest:
            self.audit("idle")
            self._audited_at_rest = True

    def audit(self, why: str) -> Audit:
        """Compare the books with every structure of the engine. Raises ``InvariantViolation`` in strict mode."""
        assert self.ledger is not None
        assert self._auditor is not None
        began = time.perf_counter()
        for record in self._unseen():
            self.ledger.leave(record.rid, UNSEEN, self.now)
            self.lost(record.rid)
        self.ledger.note_all(self.now)
        found = [*self.ledger.settle(self.now), *self._auditor.run(self.now)]
        reported, self._reported = self._reported, []
        found += [finding for finding, _ in reported]
        audit = Audit(self.now, why, tuple(found), time.perf_counter() - began)
        self.audits += 1
        self._handle(found, {id(finding): mend for finding, mend in reported})
        if self.options.mode is Mode.ENFORCE:
            self._repair_all()
        self._tell_totals()
        for sink in self._sinks:
            sink.audit(audit)
        return audit

    def _unseen(self) -> list[Record]:
        """Attempts believed queued that the engine has in no queue and no batch.

        Where disaggregation has queues of its own, none is ever called unseen.
        """
        assert self.ledger is not None
        view = self.ledger.view
        if view.scheduler.disaggregation_mode.value != "null":
            return []
        known = {key_of(request) for request in view.requests()}
        return [record for record in self.ledger.queued() if record.key not in known]

    def leftovers(self) -> list[str]:
        """What is held now and may not be, one line each; for the end of a run."""
        if self.ledger is None:
            return []
        lines = [
            f"{record.name}: {kind} {record.held[kind]} since pass {record.since[kind]}"
            for record in self.ledger.all()
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

    def _deal(self, *, totals: bool) -> None:
        assert self.ledger is not None
        found = self.ledger.settle(self.now, totals=totals)
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
        for record in self.ledger.all():
            if any(invariant_of(kind) not in self.options.allow for kind in record.leftovers()):
                self._give_back(record)
        if "conservation" not in self.options.allow:
            for kind in TOTALS:
                self._mend_total(kind)
            self._free_lost()

    def _give_back(self, record: Record) -> None:
        assert self.ledger is not None
        for kind, amount in enforce.give_back(self.ledger, record, self.now):
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
        repair = Repair(kind, self.now, rid, attempt, amount, enforce.DONE[kind].format(amount) + whose)
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
        finding = total("belief-evidence", Kind.BELIEF, lost, self.now, message)
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
        finding = total("belief-evidence", Kind.BELIEF, pages, self.now, message)
        self.report(finding, lambda: enforce.forget_beliefs(view))


def head(queue: Any, count: int | None) -> list[Any]:
    """The first ``count`` items of a queue, None for all, without taking them."""
    if count == 0 or not queue.queue:
        return []
    with queue.mutex:
        items = list(queue.queue)
    return items if count is None else items[:count]
