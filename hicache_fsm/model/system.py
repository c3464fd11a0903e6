"""A bounded system as a value: variables, initial state, guarded actions, and what must hold of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hicache_fsm.model.expr import Expr
from hicache_fsm.model.layout import Layout


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a machine's table, and the request, node or page that takes it."""

    machine: str
    number: int
    label: str


@dataclass(frozen=True, slots=True)
class Action:
    """One guarded step: where `guard` holds, the variables in `updates` take new values, all at once.

    `event` and `subject` say what happens to which request, node or page, -1 for none in particular;
    `effects` are those of the top row, `parameters` what the environment chose.  `rows` pairs each row of a
    table with the condition on the old state under which the step takes it.
    """

    name: str
    event: str
    subject: int
    guard: Expr
    updates: Mapping[str, Expr]
    rows: tuple[tuple[Row, Expr], ...] = ()
    effects: tuple[str, ...] = ()
    parameters: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class StateCheck:
    """`holds` in every reachable state."""

    invariant: str
    holds: Expr


@dataclass(frozen=True, slots=True)
class StepCheck:
    """`holds(action, post)` for every step: a condition on the old state; `post` has the new values."""

    invariant: str
    holds: Callable[[Action, Mapping[str, Expr]], Expr]


@dataclass(frozen=True, slots=True)
class Goal:
    """From every reachable state with `start`, steps that `allowed` admits can reach a state with `goal`."""

    invariant: str
    about: str
    start: Expr
    goal: Expr
    allowed: Callable[[Action], bool]


@dataclass(frozen=True, slots=True)
class System:
    """A finite transition system built from one profile of the spec under bounds."""

    name: str
    configuration: str
    profile: str
    layout: Layout
    initial: Mapping[str, int]
    actions: tuple[Action, ...]
    states: tuple[StateCheck, ...] = ()
    steps: tuple[StepCheck, ...] = ()
    goals: tuple[Goal, ...] = ()

    @property
    def invariants(self) -> tuple[str, ...]:
        """The ids that this system checks, each once."""
        ids = [check.invariant for check in self.states]
        ids += [check.invariant for check in self.steps]
        ids += [goal.invariant for goal in self.goals]
        return tuple(dict.fromkeys(ids))
