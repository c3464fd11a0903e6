"""Conformance: the model, TLC and the shipped runtime reach the same states by the same steps."""

from hicache_fsm.conform.cases import Case, ConformError, case
from hicache_fsm.conform.compare import Difference, difference
from hicache_fsm.conform.plan import PLAN
from hicache_fsm.conform.report import Comparison, Report, Side, exit_code
from hicache_fsm.conform.run import Sides, compare, sides
from hicache_fsm.conform.runtime_side import DriverError, runtime_graph

__all__ = [
    "PLAN",
    "Case",
    "Comparison",
    "ConformError",
    "Difference",
    "DriverError",
    "Report",
    "Side",
    "Sides",
    "case",
    "compare",
    "difference",
    "exit_code",
    "runtime_graph",
    "sides",
]
