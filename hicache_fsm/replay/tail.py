"""Judges a log that lost its beginning, as a flight recorder's dump: the attempts that begin in it, as ever."""

from math import inf
from typing import Final

from hicache_fsm.replay.judge import Judge
from hicache_fsm.replay.tracked import Tracked
from hicache_fsm.runtime.logread import Line
from hicache_fsm.spec import Spec, Transition

UNKNOWN: Final = "unknown"
"""The state of an attempt that began before the tail, until it ends."""


class TailJudge(Judge):
    """Passes over what hangs on the lost part: attempts and operations that began in it, and its totals.

    An attempt that began there is only watched for its end; it is counted as `attempts passed over`.
    """

    def __init__(self, spec: Spec, header: Line, path: str) -> None:
        super().__init__(spec, header, path)
        self._old_ops = inf
        """Operations up to this one may be of the lost part."""
        self._knows_pins = False

    def feed(self, line: Line) -> None:
        """Judge one line; the first of an attempt that began before the tail makes it known."""
        if line.rid and line.event != "enqueue" and self._is_old(self._latest.get(line.rid), line.attempt):
            old = Tracked(line.rid, line.attempt, UNKNOWN, line.pass_, again=True, lost=True)
            self._latest[line.rid] = old
            self.verdict.counts["attempts passed over"] += 1
        super().feed(line)

    def _enqueue(self, line: Line) -> None:
        before = self._latest.get(line.rid)
        if before is None or self._is_old(before, line.attempt - 1):
            # What came before it is unknown, but for what the engine shows.
            before = Tracked(line.rid, line.attempt - 1, UNKNOWN, line.pass_, lost=True)
            self._latest[line.rid] = before
        if before.lost:
            before.spent = int(line.seen.get("spent", 0))
        super()._enqueue(line)

    @staticmethod
    def _is_old(known: Tracked | None, attempt: int) -> bool:
        """Whether an attempt must have begun before the tail: `known`, what came so far of its id, is older."""
        return known is None or (known.state == UNKNOWN and known.attempt < attempt)

    def _operation_fits(self, line: Line, attempt: Tracked, row: Transition) -> bool:
        if self._old_ops == inf and "ask" in row.effects:
            self._old_ops = self._previous_op = line.op - 1
        return super()._operation_fits(line, attempt, row)

    def _operation_line(self, line: Line) -> None:
        if line.op <= self._old_ops:
            self._doubtful.add(line.op)
        super()._operation_line(line)

    def _pin_line(self, line: Line) -> None:
        if self._latest[line.rid].lost:
            if line.event != "pin":
                self._pinned -= line.tokens
            elif line.why == "locked":
                self._pinned += line.tokens
        else:
            super()._pin_line(line)

    def _compare_pins(self, line: Line, attempt: Tracked) -> None:
        seen = line.seen.get("pinned_tokens")
        if not self._knows_pins and seen is not None:
            self._pinned = int(seen)
            self._knows_pins = True
        super()._compare_pins(line, attempt)

    def _belief_line(self, line: Line) -> None:
        if line.event in ("write", "discard"):
            super()._belief_line(line)
