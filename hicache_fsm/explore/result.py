"""What a search found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hicache_fsm.model.system import Row

Outcome = Literal["HELD", "VIOLATED", "UNDETERMINED"]


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a counterexample: what happened, the table rows it took, and what it changed.

    `changed` gives each changed variable's old and new value in words, `number` the action's place among the
    system's actions, -1 where a step is none of them.
    """

    action: str
    rows: tuple[Row, ...]
    changed: Mapping[str, tuple[str, str]]
    number: int = -1


@dataclass(frozen=True, slots=True)
class Trace:
    """A shortest path from the initial state to a violation; `about` says what fails at its end."""

    about: str
    steps: tuple[TraceStep, ...]

    def __len__(self) -> int:
        return len(self.steps)

    def rows(self) -> list[tuple[str, str, str]]:
        """The steps as (number, action, changes), ready for a table."""
        return [
            (
                str(number),
                step.action,
                ", ".join(f"{name}: {old} → {new}" for name, (old, new) in step.changed.items()),
            )
            for number, step in enumerate(self.steps, 1)
        ]

    def __str__(self) -> str:
        return "; ".join(step.action for step in self.steps)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An invariant's outcome: HELD everywhere, VIOLATED with a trace, or UNDETERMINED by a cut search."""

    invariant: str
    outcome: Outcome
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One search: `distinct` states found, `generated` steps taken, `depth` steps to the farthest state.

    `edges` counts distinct (state, next state) pairs, a state's steps to itself included, and is None if
    none were kept.  `taken` counts the steps that took each row of a table, by (machine, row number).
    `complete` is false if the search was cut.  `engine` is which one searched: "numpy" or "compiled".
    `represented` is how many states those found stand for, None if each stands for itself.
    """

    system: str
    configuration: str
    profile: str
    distinct: int
    generated: int
    edges: int | None
    depth: int
    seconds: float
    bytes_per_state: float
    complete: bool
    verdicts: Mapping[str, Verdict]
    taken: Mapping[tuple[str, int], int]
    engine: str = "numpy"
    represented: int | None = None

    @property
    def stood_for(self) -> int:
        """All states, those included that another one stands for."""
        return self.distinct if self.represented is None else self.represented

    @property
    def states_per_second(self) -> float:
        """Distinct states found in a second."""
        return self.distinct / self.seconds if self.seconds else 0.0

    @property
    def violated(self) -> tuple[str, ...]:
        """The ids of the invariants with a counterexample."""
        return tuple(name for name, verdict in self.verdicts.items() if verdict.outcome == "VIOLATED")
