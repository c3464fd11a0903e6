"""Exhaustive search of bounded systems, with shortest counterexamples."""

from hicache_fsm.explore.estimate import Estimate, TooLargeError, estimate
from hicache_fsm.explore.explain import Explanation, explain
from hicache_fsm.explore.profiles import check_profile, untaken
from hicache_fsm.explore.result import Outcome, Result, Trace, TraceStep, Verdict
from hicache_fsm.explore.search import Choice, EngineError, Progress, explore

__all__ = [
    "Choice",
    "EngineError",
    "Estimate",
    "Explanation",
    "Outcome",
    "Progress",
    "Result",
    "TooLargeError",
    "Trace",
    "TraceStep",
    "Verdict",
    "check_profile",
    "estimate",
    "explain",
    "explore",
    "untaken",
]
