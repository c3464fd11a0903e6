"""Replay of event logs against the machines."""

from hicache_fsm.replay.files import judge, judge_file
from hicache_fsm.replay.judge import Judge
from hicache_fsm.replay.verdict import Verdict, Violation

__all__ = ["Judge", "Verdict", "Violation", "judge", "judge_file"]
