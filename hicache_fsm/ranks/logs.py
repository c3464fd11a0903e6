"""Compares event logs of the ranks of one run: constant memory, however long they are."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hicache_fsm.ranks.difference import Difference, first_difference
from hicache_fsm.ranks.digest import BELIEFS, Plain, belief_facts
from hicache_fsm.runtime.logread import Line, LogError, read_log
from hicache_fsm.spec import Spec, load_spec

MACHINES: Final = frozenset({"prefetch", "pin"})
"""The machines whose events all ranks must decide alike; nodes are each rank's own, and mostly beliefs."""

SHARED: Final = ("source", "version", "profile", "constants", "mode", "page_size", "ranks")
"""What the headers of one run's logs have in common."""

FOREVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What logs of `ranks` say; `passes` and `decisions` (of one rank) were compared, up to a difference.

    `missing` are ranks of the run without a log, `cut` the logs that end without a trailer, which are
    compared up to the last pass that they have whole.
    """

    ranks: tuple[int, ...]
    passes: int
    decisions: int
    difference: Difference | None
    missing: tuple[int, ...] = ()
    cut: tuple[Path, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The same for machines."""
        return {
            "equal": self.difference is None,
            "ranks": list(self.ranks),
            "missing": list(self.missing),
            "cut": list(map(str, self.cut)),
            "passes": self.passes,
            "decisions": self.decisions,
            "difference": None if self.difference is None else self.difference.as_json(),
        }


@dataclass(frozen=True, slots=True)
class Decided:
    """One pass of one log: what was decided and in which lines; `last` if it is the last one of a cut log."""

    pass_: int
    decisions: Sequence[Plain]
    lines: Sequence[int]
    last: bool = False


def decision_of(line: Line, *, beliefs: bool = False) -> Plain | None:
    """The decision that an event line records, None for lines of other kinds and for refused events.

    With `beliefs` also what SGLang's ranks must write and learn alike.
    """
    if beliefs and line.machine == "belief" and line.event in BELIEFS:
        return ("belief", line.event, "", 0, 0, 0, belief_facts(line.data), "")
    if line.machine not in MACHINES or line.data.get("illegal"):
        return None
    facts = f',"facts":{json.dumps(dict(line.facts), separators=(",", ":"))}' if line.facts else ""
    return (line.machine, line.event, line.rid, line.attempt, line.tokens, line.op, facts, line.why)


def compare_logs(
    paths: Sequence[Path], *, allow_truncated: bool = False, spec: Spec | None = None
) -> Comparison:
    """Find the first difference between logs of different ranks of one run.

    Raises LogError for a log that cannot be read, TruncatedLog for one whose last line is not whole unless
    `allow_truncated`, and LogError for logs that are not of different ranks of one run.
    """
    spec = load_spec() if spec is None else spec
    logs = [read_log(path, allow_truncated=allow_truncated, spec=spec) for path in paths]
    headers = [next(log) for log in logs]
    rank_of = _ranks(paths, headers)
    sglang = headers[0].data.get("source") == "sglang"
    by_rank = {rank: _passes(logs[place], sglang) for rank, place in rank_of.items()}
    files = {rank: paths[place] for rank, place in rank_of.items()}
    run = int(headers[0].data.get("ranks", 1))
    return replace(_compare(by_rank, files), missing=tuple(sorted(set(range(run)) - set(rank_of))))


def _ranks(paths: Sequence[Path], headers: Sequence[Line]) -> Mapping[int, int]:
    """Which rank each log is of, as the place of the log by rank, ordered by rank."""
    if len(paths) < 2:
        raise LogError(paths[0], 0, "is only one log", "name the logs of at least two ranks")
    first = headers[0].data
    found: dict[int, int] = {}
    for place, header in enumerate(headers):
        for name in SHARED:
            mine, other = header.data.get(name), first.get(name)
            if mine != other:
                reason = f"{name} is {mine!r}, but {other!r} in {paths[0]}"
                raise LogError(paths[place], 1, reason, "name logs of one run")
        rank = header.data.get("rank", 0)
        if type(rank) is not int or type(first.get("ranks", 1)) is not int:
            raise LogError(paths[place], 1, "rank and ranks are not whole numbers", "see docs/event-log.md")
        if rank in found:
            reason = f"is of rank {rank}, as is {paths[found[rank]]}"
            raise LogError(paths[place], 1, reason, "name one log per rank")
        found[rank] = place
    return dict(sorted(found.items()))


def _passes(lines: Iterable[Line], beliefs: bool) -> Iterator[Decided]:
    """The passes of a log that decided anything, in order."""
    now, decisions, numbers = 0, list[Plain](), list[int]()
    closed = False
    for line in lines:
        closed = line.kind == "trailer"
        if line.pass_ != now or closed:
            if decisions:
                yield Decided(now, decisions, numbers)
            now, decisions, numbers = line.pass_, [], []
        decision = decision_of(line, beliefs=beliefs)
        if decision is not None:
            decisions.append(decision)
            numbers.append(line.number)
    if not closed:
        yield Decided(now, decisions, numbers, last=True)


def _compare(logs: Mapping[int, Iterator[Decided]], files: Mapping[int, Path]) -> Comparison:
    heads = {rank: next(log, None) for rank, log in logs.items()}
    ranks, passes, decisions = tuple(logs), 0, 0
    while True:
        ended = min((one.pass_ for one in heads.values() if one is not None and one.last), default=FOREVER)
        pass_ = min((one.pass_ for one in heads.values() if one is not None), default=FOREVER)
        if pass_ == FOREVER or pass_ >= ended:
            cut = tuple(files[rank] for rank, one in heads.items() if one is not None and one.last)
            return Comparison(ranks, passes, decisions, None, cut=cut)
        now = {rank: one for rank, one in heads.items() if one is not None and one.pass_ == pass_}
        difference = first_difference(
            int(pass_), {rank: now[rank].decisions if rank in now else () for rank in ranks}
        )
        if difference is not None:
            places = {
                rank: f"{files[rank]}:{one.lines[difference.index]}"
                for rank, one in now.items()
                if difference.index < len(one.lines)
            }
            return Comparison(ranks, passes, decisions, replace(difference, places=places))
        passes += 1
        decisions += len(next(iter(now.values())).decisions)
        heads |= {rank: next(logs[rank], None) for rank in now}
