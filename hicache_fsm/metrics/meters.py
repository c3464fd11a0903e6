"""The catalogue as prometheus-client objects, under one set of process labels."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hicache_fsm.metrics.catalogue import CATALOGUE, Metric

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MetricsUnavailable(ImportError):  # noqa: N818 - says what the metrics are
    """prometheus-client is not installed."""


class Meters:
    """All families of one process, registered in `registry`.

    prometheus-client is imported here and not before: it looks at PROMETHEUS_MULTIPROC_DIR when it is
    imported, and SGLang sets that late. With it set, values live in that folder's files, whichever registry
    is given. A gauge is the most recent value of its labels there, as SGLang's are, so processes that run at
    once need a label that tells them apart, such as `tp_rank`.
    """

    def __init__(
        self,
        registry: "CollectorRegistry | None" = None,
        labels: Mapping[str, object] | None = None,
        source: str = "lifecycle",
    ) -> None:
        """`registry` None makes one of its own; `labels` are those that every series of this process has.

        `source` leaves out the families that this source never fills. Raises MetricsUnavailable without
        prometheus-client, and ValueError for families that the registry has already.
        """
        self.check_available()
        from prometheus_client import CollectorRegistry

        self.registry = CollectorRegistry() if registry is None else registry
        self.labels = {name: str(value) for name, value in (labels or {}).items()}
        self._families = {each.name: self._family(each) for each in CATALOGUE if source in each.sources}
        self._children: dict[tuple[str, ...], Any] = {}

    @staticmethod
    def check_available() -> None:
        """Raise MetricsUnavailable without prometheus-client, which is not imported for that."""
        if find_spec("prometheus_client") is None:
            raise MetricsUnavailable('metrics need prometheus-client: pip install "hicache-fsm[metrics]"')

    def child(self, name: str, *values: str) -> Any:
        """The series of a family with these values of its own labels, made on first use."""
        key = (name, *values)
        child = self._children.get(key)
        if child is None:
            child = self._families[name]
            if self.labels or values:
                child = child.labels(*self.labels.values(), *values)
            self._children[key] = child
        return child

    def add(self, name: str, amount: float, *values: str) -> None:
        """Count so many more."""
        self.child(name, *values).inc(amount)

    def set(self, name: str, value: float, *values: str) -> None:
        """The value now."""
        self.child(name, *values).set(value)

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """A histogram gets the value so many times at once, as SGLang does it: its `observe` takes one."""
        child = self.child(name)
        child._sum.inc(value * times)
        for bound, bucket in zip(child._upper_bounds, child._buckets, strict=True):
            if value <= bound:
                bucket.inc(times)
                return

    def _family(self, metric: Metric) -> Any:
        from prometheus_client import Counter, Gauge, Histogram

        names = (*self.labels, *metric.labels)
        if metric.kind == "counter":
            return Counter(metric.full_name, metric.about, names, registry=self.registry)
        if metric.kind == "gauge":
            return Gauge(
                metric.full_name,
                metric.about,
                names,
                registry=self.registry,
                multiprocess_mode="mostrecent",
            )
        return Histogram(
            metric.full_name, metric.about, names, registry=self.registry, buckets=metric.buckets
        )
