"""Metrics of a lifecycle that a scheduler embeds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hicache_fsm.machine import Row
from hicache_fsm.metrics.meters import Meters
from hicache_fsm.metrics.tally import Tally
from hicache_fsm.runtime import HiCacheLifecycle, Listener
from hicache_fsm.runtime.attempt import Attempt, Node, Operation, PinPlan
from hicache_fsm.runtime.guards import Moment
from hicache_fsm.spec import Spec, load_spec

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class LifecycleMetrics(Listener):
    """Listens to one lifecycle from its beginning.

    Series are brought up to date once per pass, and by `flush`; a pass that nothing happened before costs
    nothing.
    """

    def __init__(
        self,
        life: HiCacheLifecycle,
        *,
        registry: "CollectorRegistry | None" = None,
        labels: Mapping[str, object] | None = None,
        spec: Spec | None = None,
    ) -> None:
        """`registry` and `labels` as in `Meters`; `spec` is the lifecycle's if it is not the shipped one.

        Raises MetricsUnavailable without prometheus-client, and ValueError if the lifecycle has begun already
        or the registry has these metrics.
        """
        if not life.idle:
            raise ValueError("metrics listen from the beginning: attach them before the first request")
        self._life = life
        self._tally = Tally(load_spec() if spec is None else spec, Meters(registry, labels))
        self._held = 0
        self.registry = self._tally.meters.registry
        self.flush()
        life.listen(self)

    def queued(self, now: int, attempt: Attempt, again: str) -> None:
        self._tally.queued()

    def stepped(self, now: int, attempt: Attempt, moment: Moment, row: Row, op: Operation | None) -> None:
        mistaken = moment.answered is not None
        self._tally.took(row.transition.row, now, attempt.order, mistaken)

    def left(self, now: int, attempt: Attempt, event: str) -> None:
        self._tally.left(event)

    def pinned(self, now: int, plan: PinPlan) -> None:
        self._tally.event("pin", "pin")
        self._tally.count(1, "pins_total", plan.why)
        self._held += plan.why == "locked"

    def unpinned(self, now: int, attempt: Attempt, event: str, tokens: int) -> None:
        self._tally.event("pin", event)
        self._held -= 1

    def ended(self, now: int, op: Operation, event: str) -> None:
        self._tally.ended(event)

    def node(self, now: int, event: str, node: Node, tokens: int) -> None:
        self._tally.event("node", event)

    def believed(self, now: int, event: str, pool: str, pages: int, lowered: int) -> None:
        self._tally.event("belief", event)
        if lowered:
            self._tally.count(lowered, "beliefs_lowered_total", event)

    def refused(self, now: int, machine: str, event: str) -> None:
        self._tally.count(1, "refused_events_total", machine, event)

    def passed(self, now: int) -> None:
        if self._tally or self._life.repairs:
            self.flush()

    def flush(self) -> None:
        """Bring every series up to date now, as after the last pass of an engine that stops."""
        tally, life = self._tally, self._life
        tally.flush()
        tally.catch_up("misses_total", life.misses)
        tally.catch_up("repairs_total", life.repairs)
        if life.monitor is not None:
            tally.catch_up("invariant_violations_total", life.monitor.counts)
        tally.gauge(tally.running, "running_requests")
        tally.gauge(self._held, "pins_held")
        tally.gauge(life.pinned_tokens, "pinned_tokens")
        tally.gauge(life.settings.pin_cap, "pin_cap_tokens")
        tally.gauge(life.occupied_tokens, "occupied_tokens")
