"""`check` with bounds from the command line: what to expect, the search, other engines, and what it found explained."""

from hicache_fsm.bounded.engines import Count, counted, missing
from hicache_fsm.bounded.forecast import Forecast, forecast
from hicache_fsm.bounded.run import BoundedReport, Means, Searched, search_within, shown_finding

__all__ = [
    "BoundedReport",
    "Count",
    "Forecast",
    "Means",
    "Searched",
    "counted",
    "forecast",
    "missing",
    "search_within",
    "shown_finding",
]
