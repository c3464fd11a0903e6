"""Judging a log, or a file of one."""

from collections.abc import Iterable
from pathlib import Path

from hicache_fsm.replay.judge import Judge
from hicache_fsm.replay.tail import TailJudge
from hicache_fsm.replay.verdict import Verdict
from hicache_fsm.runtime.logread import Line, read_log
from hicache_fsm.spec import Spec


def judge(spec: Spec, lines: Iterable[Line], path: str) -> Verdict:
    """Judge a log, header first, whole or without its beginning. Raises `LogError` as the reader does."""
    stream = iter(lines)
    header = next(stream)
    following = (TailJudge if header.data.get("tail") else Judge)(spec, header, path)
    for line in stream:
        following.feed(line)
    return following.close()


def judge_file(spec: Spec, path: Path, *, allow_truncated: bool = False) -> Verdict:
    """The verdict on one log. Raises `LogError` for a file that is no whole log of this schema.

    With `allow_truncated` it may lack its end, or, as a flight recorder's dump, its beginning.
    """
    lines = read_log(path, allow_truncated=allow_truncated, allow_tail=allow_truncated, spec=spec)
    return judge(spec, lines, str(path))
