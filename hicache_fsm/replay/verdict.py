"""What a replay says: violations, and the counts a reader wants first."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule broken at one line of a log. `finding` marks a defect that the profile lists as upstream's."""

    line: int
    rule: str
    message: str
    attempt: str
    history: tuple[str, ...]
    finding: bool


@dataclass(slots=True)
class Verdict:
    """The judgement of one log."""

    path: str
    source: str = ""
    version: str = ""
    profile: str = ""
    mode: str = ""
    events: int = 0
    passes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    edges: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    not_reached: dict[str, str] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    closed: bool = False

    @property
    def unexpected(self) -> list[Violation]:
        """The violations that are not known upstream findings."""
        return [v for v in self.violations if not v.finding]

    @property
    def findings(self) -> Counter[str]:
        """Known upstream findings that this log shows, by invariant."""
        return Counter(v.rule for v in self.violations if v.finding)

    @property
    def holds(self) -> bool:
        """Whether the log breaks no rule beyond the known upstream findings."""
        return not self.unexpected

    def as_json(self) -> dict[str, Any]:
        """The verdict as plain values."""
        return {
            "log": self.path,
            "source": self.source,
            "version": self.version,
            "profile": self.profile,
            "mode": self.mode,
            "holds": self.holds,
            "events": self.events,
            "passes": self.passes,
            "counts": dict(self.counts),
            "states": dict(self.states),
            "not_reached": self.not_reached,
            "closed": self.closed,
            "violations": [asdict(violation) for violation in self.violations],
        }
