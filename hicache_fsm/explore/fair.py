"""Fair liveness: whether a weakly fair run can avoid what should happen for ever, by strongly connected components.

A run stays in one component of the graph without the states that it avoids.  The whole component is weakly fair
if each fair group has a step inside it, or a state in it that does not enable the group; else no run in it is.
Standing still is a run, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

import numpy as np
import numpy.typing as npt

from hicache_fsm.explore.backward import Mask, mask_of
from hicache_fsm.explore.estimate import TooLargeError
from hicache_fsm.explore.lasso import Group, Ints, Lasso, Steps, fair_round, to_fair
from hicache_fsm.explore.portable import Portable
from hicache_fsm.explore.result import TraceStep
from hicache_fsm.explore.trace import step_of
from hicache_fsm.model.expr import FALSE, TRUE, Expr
from hicache_fsm.model.fairness import Fairness, Liveness, Owes
from hicache_fsm.model.system import System

Labels = npt.NDArray[np.int32]
"""The component of each state."""

Components = Callable[[int, Ints, Ints], Labels]

MOST_STATES: Final = 2_000_000
"""A step takes some 40 bytes here, a state has some ten: beyond this a graph is not for this machine's memory."""

MEND: Final = "pip install 'hicache-fsm[search]'"


class ScipyMissingError(Exception):
    """Fair liveness takes scipy."""


@dataclass(frozen=True, slots=True)
class LiveVerdict:
    """Whether a property holds of every weakly fair run; if not, a run that goes round for ever without it."""

    liveness: Liveness
    lasso: Lasso | None

    @property
    def holds(self) -> bool:
        """Whether every fair run does what it should."""
        return self.lasso is None


def require_scipy() -> None:
    """Raises ScipyMissingError without scipy."""
    if find_spec("scipy") is None:
        raise ScipyMissingError(f"scipy is not installed: {MEND}")


def decide(
    system: System,
    properties: Sequence[Liveness],
    fair: Sequence[Fairness],
    *,
    max_states: int = MOST_STATES,
    tell: Callable[[str], None] = lambda _: None,
) -> list[LiveVerdict]:
    """Decide each property under the weak fairness of every group in `fair`.

    Raises ScipyMissingError without scipy, TooLargeError for more than `max_states` states.
    """
    require_scipy()
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    def components(count: int, sources: Ints, targets: Ints) -> Labels:
        graph = csr_array((np.ones(sources.size, np.int8), (sources, targets)), shape=(count, count))
        labels: Labels = connected_components(graph, connection="strong")[1]
        return labels

    portable = Portable(system, max_states, keep_edges=True)
    while portable.advance():
        if portable.cut:
            raise TooLargeError(
                f"{system.configuration}: more than {max_states:,} states, too many for fair liveness: lower the bounds"
            )
    runs = _Runs(system, portable, fair, components)
    found = []
    for each in properties:
        tell(f"{system.configuration}: {each.about}")
        found.append(LiveVerdict(each, runs.avoiding(each)))
    return found


class _Runs:
    """The steps of a complete search, and which of them the fair groups own."""

    def __init__(
        self, system: System, portable: Portable, fair: Sequence[Fairness], components: Components
    ) -> None:
        self._system = system
        self._space = portable.space
        self._graph = portable.graph()
        self._components = components
        self._steps = steps = Steps(self._graph)
        moves = steps.source != steps.target
        owned = [self._picked(group.steps) & moves for group in fair]
        self._groups = [Group(mask, steps.marked(steps.source[mask])) for mask in owned]

    def avoiding(self, what: Liveness) -> Lasso | None:
        """A fair run that comes to where `what` is due and then avoids it for ever."""
        steps = self._steps
        start, goal = self._mask(what.start), self._mask(what.goal)
        inside = np.ones(steps.count, np.bool_) if what.stays else ~goal
        kept = self._picked(what.eventually) & inside[steps.source] & inside[steps.target]
        labels = self._components(steps.count, steps.source[kept], steps.target[kept])
        fair = self._fair(labels, kept, inside)
        if what.stays:
            # It is enough that the goal is lost once a round.
            fair &= steps.marked(labels[~goal])
        before = np.ones_like(kept) if what.stays else kept
        way = to_fair(steps, self._graph, start & inside, fair[labels] & ~goal, before)
        if way is None:
            return None
        prefix, end = way
        within = kept & (labels[steps.source] == labels[end]) & (labels[steps.target] == labels[end])
        loop = fair_round(steps, self._groups, end, within)
        return Lasso(f"not {what.about}", self._shown(prefix), self._shown(loop))

    def _fair(self, labels: Labels, kept: Mask, inside: Mask) -> Mask:
        """Which components are fair to every group."""
        steps = self._steps
        fair = np.ones(steps.count, np.bool_)
        within = kept & (labels[steps.source] == labels[steps.target])
        for group in self._groups:
            served = steps.marked(labels[steps.source[within & group.owned]])
            fair &= served | steps.marked(labels[inside & ~group.enabled])
        return fair

    def _shown(self, numbers: Sequence[int]) -> tuple[TraceStep, ...]:
        steps, layout = self._steps, self._system.layout
        keys = (int(self._graph.keys[steps.source[number]]) for number in numbers)
        states = (layout.unpack(self._space.packed(key)) for key in keys)
        return tuple(
            step_of(self._system, state, int(steps.action[number]))
            for number, state in zip(numbers, states, strict=True)
        )

    def _mask(self, condition: Expr) -> Mask:
        return mask_of(self._space, self._graph, condition)

    def _picked(self, which: Owes) -> Mask:
        """The steps that `which` picks."""
        conditions = [which(action) for action in self._system.actions]
        chosen = np.array([condition != FALSE for condition in conditions], np.bool_)[self._steps.action]
        for condition in set(conditions) - {TRUE, FALSE}:
            mine = np.array([each == condition for each in conditions], np.bool_)[self._steps.action]
            chosen &= ~mine | self._mask(condition)[self._steps.source]
        return chosen
