"""Metrics of a real SGLang, from what the plugin tells: a `Sink` of `hicache_fsm.sglang.sink` by its shape."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hicache_fsm.metrics.followed import Followed, Follower
from hicache_fsm.metrics.meters import Meters
from hicache_fsm.metrics.tally import Tally
from hicache_fsm.spec import Spec, load_spec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LOGGER = logging.getLogger("hicache_fsm.metrics")

LOWERS: Final = frozenset({"discard", "clear", "detach", "reset"})
"""Events that lower beliefs; pages that are denied or whose write failed need not have been believed."""
MARKS: Final = frozenset({"raise_marker", "raise_immediate"})


class SglangMetrics:
    """Counts what the plugin sees in one scheduler process, from `engine` on."""

    def __init__(
        self,
        registry: "CollectorRegistry | None" = None,
        labels: Mapping[str, object] | None = None,
        spec: Spec | None = None,
    ) -> None:
        """`registry` and `labels` as in `Meters`; without labels the series have the process's `tp_rank`.

        Raises MetricsUnavailable without prometheus-client.
        """
        Meters.check_available()
        self._labels = labels
        self._spec = load_spec() if spec is None else spec
        self._served = registry is not None
        self._books: Books | None = None
        self.registry: CollectorRegistry | None = registry

    def engine(self, header: Mapping[str, object]) -> None:
        """The engine has begun: its rank and its profile."""
        labels = {"tp_rank": header.get("rank", 0)} if self._labels is None else self._labels
        meters = Meters(self.registry, labels, source="plugin")
        self.registry = meters.registry
        self._books = Books(Tally(self._spec, meters), Follower(self._spec, header))
        self._books.tally.flush()
        if not self._served and "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            LOGGER.warning("nobody serves the metrics of hicache-fsm: start SGLang with --enable-metrics")

    def transition(
        self, pass_: int, machine: str, event: str, rid: str | None, members: Mapping[str, Any]
    ) -> None:
        """One event of the event log."""
        if self._books is None:
            return
        tally = self._books.tally
        if machine == "prefetch" and rid is not None:
            self._books.prefetch(pass_, event, rid, members)
        elif machine == "operation":
            tally.ended(event)
        else:
            tally.event(machine, event)
        if machine == "pin" and event == "pin":
            tally.count(1, "pins_total", members.get("why", "locked"))
        elif machine == "belief" and event in LOWERS:
            pages = members.get("pages", 0) - members.get("keep_pages", 0)
            if pages > 0:
                tally.count(pages, "beliefs_lowered_total", event)

    def totals(self, pass_: int, totals: Any) -> None:
        """What the engine holds at the end of a pass (`Totals`)."""
        if self._books is None:
            return
        if not totals.queued and not totals.running:
            self._books.forget()
        tally = self._books.tally
        tally.flush()
        tally.gauge(totals.running, "running_requests")
        tally.gauge(totals.pinned_tokens, "pinned_tokens")
        tally.gauge(totals.pin_cap_tokens, "pin_cap_tokens")
        tally.gauge(totals.occupied_tokens, "occupied_tokens")
        for kind in ("markers", "entries", "parked", "holds"):
            tally.gauge(getattr(totals, kind), "engine_holdings", kind)

    def violation(self, finding: Any) -> None:
        """A new finding (`Finding`)."""
        if self._books is not None:
            self._books.tally.count(1, "invariant_violations_total", finding.invariant)

    def repair(self, repair: Any) -> None:
        """A repair that was carried out (`Repair`)."""
        if self._books is not None:
            self._books.tally.count(1, "repairs_total", str(repair.kind))

    def audit(self, audit: Any) -> None:
        """A full audit has ended (`Audit`)."""
        if self._books is not None:
            tally = self._books.tally
            tally.count(1, "audits_total", audit.why, "true" if audit.clean else "false")
            tally.meters.observe("audit_seconds", audit.seconds)
            tally.flush()

    def close(self) -> None:
        """The engine ends."""
        if self._books is not None:
            self._books.tally.flush()

    def state(self, rid: str) -> str | None:
        """The prefetch machine's state of the request's newest attempt, None if it is not known."""
        return None if self._books is None else self._books.follower.state(rid)


@dataclass(frozen=True, slots=True)
class Books:
    """The counts of one engine, and where each of its attempts is."""

    tally: Tally
    follower: Follower

    def prefetch(self, now: int, event: str, rid: str, members: Mapping[str, Any]) -> None:
        """One event of a request."""
        tally, attempts = self.tally, self.follower.attempts
        one = attempts.get(rid)
        if event == "enqueue":
            self._vanish(one)
            self.follower.begin(rid, members.get("again", ""))
            tally.queued()
        elif event in ("retract", "finish"):
            tally.left(event)
            if event == "finish":
                attempts.pop(rid, None)
        elif one is None or (row := self.follower.take(one, event, members)) is None:
            tally.count(1, "refused_events_total", "prefetch", event)
        else:
            tally.took(row.transition.row, now, one.number)
            if row.transition.source != "missed" and MARKS.intersection(row.transition.effects):
                tally.count(1, "misses_total", members.get("why") or event)
            if row.transition.dest == "aborted":
                del attempts[rid]

    def forget(self) -> None:
        """The engine has no request: so it has none of these."""
        for one in self.follower.attempts.values():
            self._vanish(one)
        self.follower.attempts.clear()

    def _vanish(self, one: Followed | None) -> None:
        """An attempt was never seen to end: whatever state it was in, it is no longer."""
        if one is not None and one.state not in self.follower.table.terminal:
            self.tally.vanished(one.number, self.follower.table.states[one.state])


def make_sink(
    registry: "CollectorRegistry | None" = None, labels: Mapping[str, object] | None = None
) -> SglangMetrics:
    """The metrics sink for the plugin.  Raises MetricsUnavailable without prometheus-client."""
    return SglangMetrics(registry, labels)
