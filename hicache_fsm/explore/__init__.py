"""Exhaustive search of bounded systems, with shortest counterexamples."""

from hicache_fsm.explore.profiles import check_profile, untaken
from hicache_fsm.explore.result import Outcome, Result, Trace, TraceStep, Verdict
from hicache_fsm.explore.search import Progress, explore

__all__ = [
    "Outcome",
    "Progress",
    "Result",
    "Trace",
    "TraceStep",
    "Verdict",
    "check_profile",
    "explore",
    "untaken",
]
