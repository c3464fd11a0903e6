"""Judging a log file."""

from pathlib import Path

from hicache_fsm.replay.judge import judge
from hicache_fsm.replay.verdict import Verdict
from hicache_fsm.runtime.logread import read_log
from hicache_fsm.spec import Spec


def judge_file(spec: Spec, path: Path, *, allow_truncated: bool = False) -> Verdict:
    """The verdict on one log. Raises `LogError` for a file that is no whole log of this schema."""
    return judge(spec, read_log(path, allow_truncated=allow_truncated, spec=spec), str(path))
