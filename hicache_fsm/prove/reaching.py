"""That a goal stays reachable, for every value of the quantities: by a rank that some step lowers.

From each state that has yet to reach the goal some allowed step reaches it, or lowers the rank and has yet to
reach it.  A rank is a few numbers from 0 up, compared as a dictionary compares words, so it cannot fall for ever.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hicache_fsm.model.admission.checks import Checks
from hicache_fsm.model.admission.queue import pins, waits
from hicache_fsm.model.admission.scope import OPERATION, Scope, name
from hicache_fsm.model.build import start
from hicache_fsm.model.expr import FALSE, TRUE, Expr, flag, number, substitute, total, variable, where
from hicache_fsm.model.layout import Layout
from hicache_fsm.model.tables import View
from hicache_fsm.prove.conjuncts import WayOn
from hicache_fsm.spec.types import Machine

Values = Mapping[str, Expr]

CALM_NEEDS = (
    "ranges", "one-in-flight", "pin-cap", "conservation", "parked-empty", "within-chain", "outside-clean", "no-residue",
)  # fmt: skip
"""The conjuncts that the way without aborts leans on."""

ALONE_NEEDS = ("one-in-flight", "pins-counted")
"""Those of the way on which the others leave."""

WAITS_FOR = {"asking": 4, "known": 3, "reading": 2}
"""How far a request is from being admissible: more than an admissible one, which is at 1."""


def falls(rank: Sequence[Expr], post: Values) -> Expr:
    """Whether the rank is lower after the step."""
    lower, equal = FALSE, TRUE
    for part in rank:
        after = substitute(part, post)
        lower = lower | (equal & after.lt(part))
        equal = equal & after.eq(part)
    return lower


def ranked(goal: Expr, still: Expr, rank: Sequence[Expr]) -> Callable[[Values], Expr]:
    """Whether a step reaches the goal, or lowers the rank and leaves `still`, from where the goal is owed."""

    def leads_on(post: Values) -> Expr:
        return substitute(goal, post) | (substitute(still, post) & falls(rank, post))

    return leads_on


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways of the admission system: to the admission of each request, and to the end of each orphan."""

    scope: Scope
    prefetch: Machine
    pin: Machine
    layout: Layout

    def all(self) -> Iterator[WayOn]:
        """The goals of the bounded search as ways, for every size that holds a request, and its chain for headroom."""
        goals = Checks(self.scope, self.prefetch, self.pin, start(self.layout)).goals()
        fits = (variable("context") + 1).le(variable("device"))
        held = variable("chain").le(variable("host"))
        for request in range(self.scope.requests):
            headroom, progress, orphan = goals[3 * request : 3 * request + 3]
            queued = waits(self.prefetch, start(self.layout).values, request)
            for goal, sizes, rank, needs in (
                (headroom, fits & held, self._calmly(), CALM_NEEDS),
                (progress, fits, self._alone(request), ALONE_NEEDS),
            ):
                leads_on = ranked(goal.goal, queued, rank)
                chosen = {"read": number(0)}
                yield WayOn(goal.invariant, goal.about, queued & sizes, leads_on, goal.allowed, needs, chosen)
            ends = ranked(orphan.goal, FALSE, ())
            yield WayOn(orphan.invariant, orphan.about, orphan.start, ends, orphan.allowed)

    def _calmly(self) -> Sequence[Expr]:
        """Everybody is answered, admitted and finishes; orphans end and fills are acknowledged."""
        views = self._views()
        return (
            total(self._distance(i, view) for i, view in enumerate(views)),
            total(flag(view["running"].ne(0)) for view in views),
            total(flag(view["orphan_asking"].eq(1) | view["orphan_pages"].gt(0)) for view in views),
            total(flag(view["filling"].gt(0)) for view in views),
        )

    def _alone(self, request: int) -> Sequence[Expr]:
        """The others leave, the request's own wait ends, whoever runs finishes, what a pin was left by lapses."""
        views, values = self._views(), start(self.layout).values
        left = [pins(self.pin, values, i) & ~waits(self.prefetch, values, i) for i in range(len(views))]
        return (
            total(flag(waits(self.prefetch, values, i)) for i in range(len(views)) if i != request),
            self._distance(request, views[request]),
            total(flag(view["running"].ne(0)) for view in views),
            total(flag(each) for each in left),
        )

    def _distance(self, request: int, view: View) -> Expr:
        """How far a queued request is from being admitted; 0 for one that does not queue."""
        far: Expr = number(1)
        for operation, steps in WAITS_FOR.items():
            far = where(view["op"].eq(OPERATION.index(operation)), steps, far)
        return where(waits(self.prefetch, start(self.layout).values, request), far, 0)

    def _views(self) -> list[View]:
        return [View(start(self.layout), name(i)) for i in range(self.scope.requests)]
