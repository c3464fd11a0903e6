"""What a scheduler that runs the machines exposes to Prometheus; docs/metrics.md lists it."""

from hicache_fsm.metrics.catalogue import CATALOGUE, Metric
from hicache_fsm.metrics.lifecycle import LifecycleMetrics
from hicache_fsm.metrics.meters import Meters, MetricsUnavailable

__all__ = ["CATALOGUE", "LifecycleMetrics", "Meters", "Metric", "MetricsUnavailable"]
