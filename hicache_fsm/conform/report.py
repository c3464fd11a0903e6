"""What a comparison found."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hicache_fsm.conform.compare import Difference


@dataclass(frozen=True, slots=True)
class Side:
    """One side's search: distinct states, depth in steps, distinct labelled edges (None: not kept), seconds."""

    name: str
    distinct: int
    depth: int
    edges: int | None
    seconds: float

    @property
    def counts(self) -> tuple[int, int, int | None]:
        """What must be equal on all sides."""
        return self.distinct, self.depth, self.edges


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sides that saw the same variables: `view` says which, `without` which events were left out for all."""

    view: str
    sides: tuple[Side, ...]
    difference: Difference | None
    without: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        """Whether all sides agree."""
        return self.difference is None and len({side.counts for side in self.sides}) == 1


@dataclass(frozen=True, slots=True)
class Report:
    """One configuration under one profile."""

    configuration: str
    profile: str
    comparisons: tuple[Comparison, ...]

    @property
    def equal(self) -> bool:
        """Whether all sides agree in every comparison."""
        return all(each.equal for each in self.comparisons)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "configuration": self.configuration,
            "profile": self.profile,
            "equal": self.equal,
            "comparisons": [
                {
                    "view": each.view,
                    "equal": each.equal,
                    "without": list(each.without),
                    "sides": {
                        side.name: {
                            "distinct": side.distinct,
                            "depth": side.depth,
                            "edges": side.edges,
                            "seconds": round(side.seconds, 2),
                        }
                        for side in each.sides
                    },
                    "difference": each.difference.as_json() if each.difference is not None else None,
                }
                for each in self.comparisons
            ],
        }


def exit_code(reports: Sequence[Report]) -> int:
    """0 if all agree, 1 if not."""
    return 0 if all(report.equal for report in reports) else 1
