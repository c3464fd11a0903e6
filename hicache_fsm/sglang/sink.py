"""What the plugin tells whoever counts: the one seam between it and metrics, logs and tests.

Standard library only. A sink is called on the scheduler's thread, so it must be quick and must not block;
what it raises counts as a fault of the plugin, which then switches itself off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Totals:
    """What the whole engine holds, as it counts itself, between two passes."""

    queued: int
    """Attempts in the waiting queue."""
    running: int
    """Attempts admitted and not yet finished."""
    markers: int
    entries: int
    """Prefetches in flight."""
    parked: int
    """Known hits that wait for room; 0 in cache mode."""
    holds: int
    """Staged holds that wait for admission; 0 in cache mode."""
    pinned_tokens: int
    pin_cap_tokens: int
    """0 in cache mode, which pins no device anchors."""
    occupied_tokens: int
    """Host tokens counted against prefetches."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that nobody living owns, or a book that does not add up."""

    invariant: str
    """Id of ``spec/invariants.toml``: ``no-residue``, ``marker-owned``, ``pin-owned``, ``conservation``, ..."""
    kind: str
    """What is held: a value of ``hicache_fsm.sglang.kinds.Kind``."""
    pass_: int
    """The pass in which it was found."""
    rid: str | None
    """The request it is filed under; None for a total."""
    attempt: int | None
    amount: int
    """In tokens where ``kind`` has a size, else 1."""
    since_pass: int
    """The pass since which it is held."""
    left_pass: int | None
    """The pass in which its owner left; None if it never had one."""
    exit: str | None
    """Through which exit its owner left: ``admit``, ``abort``, ``finish``, ``retract``; None if never seen."""
    message: str
    """One line for a log."""

    def __str__(self) -> str:
        return f"{self.invariant}: pass {self.pass_}: {self.message}"


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that ``enforce`` gave back."""

    kind: str
    """As ``Finding.kind``."""
    pass_: int
    rid: str | None
    attempt: int | None
    amount: int
    message: str

    def __str__(self) -> str:
        return f"pass {self.pass_}: {self.message}"


@dataclass(frozen=True, slots=True)
class Audit:
    """One full audit against the engine's own structures."""

    pass_: int
    why: str
    """``idle``, ``period``, ``demand`` or ``close``."""
    findings: tuple[Finding, ...]
    seconds: float
    """What it took."""

    @property
    def clean(self) -> bool:
        """Whether it found nothing."""
        return not self.findings


class Sink(Protocol):
    """Hears what the plugin sees. Nothing it returns is used."""

    def engine(self, header: Mapping[str, object]) -> None:
        """Once, before all else: the members of the event log's header (version, profile, constants, ...)."""

    def transition(
        self, pass_: int, machine: str, event: str, rid: str | None, members: Mapping[str, object]
    ) -> None:
        """One event of docs/event-log.md; ``members`` are its fields (``attempt``, ``why``, ``tokens``, ...).

        The mapping belongs to the caller: copy what is kept.
        """

    def totals(self, pass_: int, totals: Totals) -> None:
        """At a judgement or an audit, if anything changed since the last one (``HICACHE_FSM_EVERY``)."""

    def violation(self, finding: Finding) -> None:
        """A new finding; each is told once."""

    def repair(self, repair: Repair) -> None:
        """A repair that was carried out."""

    def audit(self, audit: Audit) -> None:
        """A full audit has ended; its findings have been told by ``violation`` before."""

    def close(self) -> None:
        """The engine ends."""
