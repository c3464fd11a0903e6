"""Event logs judged by TLC: all of them in one run, against the same table and rules as `replay`, written in TLA+."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_fsm.runtime import read_log
from hicache_fsm.spec import Spec
from hicache_fsm.tlc.errors import TlcError
from hicache_fsm.tlc.locate import Tools, tla_dir
from hicache_fsm.tlc.run import Job, Tell, run
from hicache_fsm.tlc.tracedata import MODULE, Log, module
from hicache_fsm.tlc.values import parse


@dataclass(frozen=True, slots=True)
class TraceVerdict:
    """One log: accepted, or the line (from 1) and the event at which it breaks `rules`."""

    path: str
    events: int
    line: int = 0
    event: str = ""
    rules: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether every event was followed."""
        return not self.rules

    def __str__(self) -> str:
        if self.accepted:
            return f"{self.path}: accepted, {self.events:,} events"
        return f"{self.path}:{self.line}: {self.event} breaks {', '.join(self.rules)}"

    def as_json(self) -> dict[str, Any]:
        """The verdict as plain values."""
        return {
            "log": self.path,
            "accepted": self.accepted,
            "events": self.events,
            "line": self.line,
            "event": self.event,
            "rules": list(self.rules),
        }


def check_logs(
    tools: Tools,
    spec: Spec,
    paths: Sequence[Path],
    *,
    allow_truncated: bool = False,
    tell: Tell = lambda _: None,
) -> list[TraceVerdict]:
    """The verdict on each log, in one JVM.

    Raises LogError for a file that is no whole log of this schema, TlcError if TLC gives no verdict on one.
    """
    logs: list[Log] = []
    for path in paths:
        lines = read_log(path, allow_truncated=allow_truncated, spec=spec)
        header = next(lines)
        if header.data["profile"] not in spec.profiles:
            raise TlcError(
                f'{path}: unknown profile "{header.data["profile"]}": one of {", ".join(spec.profiles)}'
            )
        logs.append(Log(spec, header, lines))
    if not logs:
        return []
    data = module(spec.machines["prefetch"], logs)
    outcome = run(tools, Job(tla_dir(), "TraceBatch", "TraceBatch.cfg", extra={f"{MODULE}.tla": data}), tell)
    said = _said(outcome.printed)
    return [
        _verdict(str(path), log, said.get(number))
        for number, (path, log) in enumerate(zip(paths, logs, strict=True), 1)
    ]


def _said(printed: Sequence[str]) -> dict[int, tuple[int, frozenset[object]]]:
    """What was printed of each log: the event at which it was rejected, 0 if it was accepted, and the rules."""
    found: dict[int, tuple[int, frozenset[object]]] = {}
    for line in printed:
        match parse(line):
            case ("accepted", int() as log):
                found[log] = 0, frozenset()
            case ("rejected", int() as log, int() as event, frozenset() as rules):
                found[log] = event, rules
    return found


def _verdict(path: str, log: Log, said: tuple[int, frozenset[object]] | None) -> TraceVerdict:
    if said is None:
        raise TlcError(f"{path}: TLC ended without a word on this log")
    event, rules = said
    if not event:
        return TraceVerdict(path, len(log.events))
    what = log.events[event - 1]
    name = f"{what['machine']}.{what['event']}".rstrip(".")
    return TraceVerdict(path, len(log.events), log.lines[event - 1], name, tuple(sorted(map(str, rules))))
