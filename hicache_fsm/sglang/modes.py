"""What the plugin does with what it finds, and how an operator says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from .sink import Finding

MODE = "HICACHE_FSM_MODE"
LOG = "HICACHE_FSM_LOG"
METRICS = "HICACHE_FSM_METRICS"
AUDIT_PASSES = "HICACHE_FSM_AUDIT_PASSES"
EVERY = "HICACHE_FSM_EVERY"
ALLOW = "HICACHE_FSM_ALLOW"
RETRIES = "HICACHE_FSM_RETRIES"
RANKS = "HICACHE_FSM_RANKS"
RANKS_TIMEOUT = "HICACHE_FSM_RANKS_TIMEOUT"
VARIABLES = (MODE, LOG, METRICS, AUDIT_PASSES, EVERY, ALLOW, RETRIES, RANKS, RANKS_TIMEOUT)
"""All variables that the plugin reads."""
EVERY_PASSES = 16
"""Passes between two judgements where nothing else is asked for."""
FALSE = ("", "0", "false", "no", "off")


class Mode(StrEnum):
    """How far the plugin goes."""

    OFF = "off"
    """No hook is registered."""
    OBSERVE = "observe"
    """Says what it finds and changes nothing."""
    ENFORCE = "enforce"
    """Gives back what nobody living owns."""
    STRICT = "strict"
    """Raises ``InvariantViolation``."""


class InvariantViolation(Exception):  # noqa: N818 - the design's name
    """Something is owned by nobody, or a book does not add up, in an engine that runs ``strict``.

    ``history`` holds the newest events of the attempt, oldest first; ``others`` what was found with it.
    """

    def __init__(self, finding: Finding, history: Sequence[str] = (), others: Sequence[Finding] = ()) -> None:
        super().__init__(str(finding))
        self.finding = finding
        self.history = tuple(history)
        self.others = tuple(others)

    def __str__(self) -> str:
        more = [f"and {len(self.others)} more in the same pass"] if self.others else []
        return "\n  ".join([str(self.finding), *self.history, *more])


@dataclass(frozen=True, slots=True)
class Options:
    """The plugin's settings.

    ``every`` is how many passes a change may wait for its judgement, which covers all changes since the last one;
    ``strict`` judges on each pass. ``audit_passes`` is the distance between two full audits in scheduling passes,
    0 for none but the idle ones. ``allow`` names invariants whose findings are only logged in ``strict`` and left
    alone by ``enforce``.
    ``ranks`` is the distance between two comparisons of the ranks' decisions in scheduling passes, 0 for none;
    a rank that does not come to one is waited for ``ranks_timeout`` seconds.
    """

    mode: Mode = Mode.OFF
    log: Path | None = None
    metrics: bool = False
    every: int = EVERY_PASSES
    audit_passes: int = 0
    allow: frozenset[str] = frozenset()
    ranks: int = 0
    ranks_timeout: int = 60

    @property
    def patience(self) -> int:
        """Passes from a change to its judgement."""
        return 1 if self.mode is Mode.STRICT else self.every

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"{EVERY}={self.every}: passes between two judgements, 1 or more")
        if self.audit_passes < 0:
            raise ValueError(f"{AUDIT_PASSES}={self.audit_passes}: passes between two audits, 0 or more")
        if self.ranks < 0:
            raise ValueError(f"{RANKS}={self.ranks}: passes between two comparisons of ranks, 0 or more")
        if self.ranks_timeout < 1:
            raise ValueError(f"{RANKS_TIMEOUT}={self.ranks_timeout}: seconds, 1 or more")

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Read the variables. Raises ``ValueError``: one line with the variable and what it may be."""
        log = environment.get(LOG)
        metrics = environment.get(METRICS, "").lower() not in FALSE
        asked = environment.get(MODE)
        passes = _number(
            environment, AUDIT_PASSES, 0, "passes between two audits, a whole number, 0 for none"
        )
        ranks = _number(
            environment, RANKS, 0, "passes between two comparisons of ranks, a whole number, 0 for none"
        )
        if asked is None or not asked.strip():
            mode = Mode.OBSERVE if log or metrics or ranks else Mode.OFF
        else:
            mode = mode_named(asked)
        every = _number(
            environment, EVERY, EVERY_PASSES, "passes between two judgements, a whole number, 1 or more"
        )
        return cls(
            mode=mode,
            log=Path(log) if log else None,
            metrics=metrics,
            every=every,
            audit_passes=passes,
            allow=allowed(environment.get(ALLOW, "")),
            ranks=ranks,
            ranks_timeout=_number(environment, RANKS_TIMEOUT, 60, "seconds, a whole number"),
        )


def _number(environment: Mapping[str, str], name: str, default: int, meaning: str) -> int:
    given = environment.get(name, "").strip()
    if given and not given.isdecimal():
        raise ValueError(f"{name}={given}: {meaning}")
    return int(given) if given else default


def allowed(names: str) -> frozenset[str]:
    """Ids of invariants, separated by commas. Raises ``ValueError`` with one line for an unknown one."""
    chosen = frozenset(name.strip() for name in names.split(",") if name.strip())
    if chosen:
        from hicache_fsm.spec import load_spec

        known = load_spec().invariants
        if unknown := sorted(chosen - set(known)):
            told = ", ".join(known)
            raise ValueError(f"{ALLOW}={names}: unknown invariant {', '.join(unknown)}; there are {told}")
    return chosen


def mode_named(name: str) -> Mode:
    """The mode of a name. Raises ``ValueError`` with one line for an unknown one."""
    try:
        return Mode(name.strip().lower())
    except ValueError:
        known = ", ".join(Mode)
        raise ValueError(f"{MODE}={name}: unknown mode; it may be {known}") from None
