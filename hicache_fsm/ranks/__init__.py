"""Ranks compare digests of what they decided, pass by pass."""

from hicache_fsm.ranks.compare import RankComparison, RanksError, side_group
from hicache_fsm.ranks.difference import Difference
from hicache_fsm.ranks.digest import Decision, RankDigest
from hicache_fsm.ranks.lifecycle import Decisions
from hicache_fsm.ranks.logs import Comparison, compare_logs
from hicache_fsm.ranks.stall import StallWatch

__all__ = [
    "Comparison",
    "Decision",
    "Decisions",
    "Difference",
    "RankComparison",
    "RankDigest",
    "RanksError",
    "StallWatch",
    "compare_logs",
    "side_group",
]
