"""The waiting queue, in the requests' order: who is in it, who heads it, and who fits on the device."""

from collections.abc import Mapping

from hicache_fsm.model.admission.scope import Scope, name
from hicache_fsm.model.expr import Expr, all_of, one_of, total, where
from hicache_fsm.spec.types import Machine

Values = Mapping[str, Expr]


def code_of(prefetch: Machine, state: str) -> int:
    """The code of a prefetch state; 0 is a request that has not arrived."""
    return list(prefetch.states).index(state) + 1


def waits(prefetch: Machine, values: Values, request: int) -> Expr:
    """Whether the request is in the queue."""
    codes = [code for code, state in enumerate(prefetch.states.values(), 1) if not state.terminal]
    return one_of(values[f"{name(request)}.state"], codes)


def heads(prefetch: Machine, values: Values, request: int) -> Expr:
    """Whether nobody queues before the request."""
    return all_of(~waits(prefetch, values, other) for other in range(request))


def pins(pin: Machine, values: Values, request: int) -> Expr:
    """Whether the request's own pin is on the anchor."""
    return values[f"{name(request)}.pin"].eq(list(pin.states).index("pinned"))


def fits_device(scope: Scope, pin: Machine, values: Values, request: int) -> Expr:
    """Whether the device has room for the request beside what others pin and run.

    Its own pin is part of its demand: the anchor is its prefix.
    """
    own = where(pins(pin, values, request), scope.anchors[request], 0)
    running = total(
        where(values[f"{name(other)}.running"].eq(1), scope.demand, 0) for other in range(scope.requests)
    )
    return (values["pinned"] - own + running + scope.demand).le(scope.device)


def scan_reaches(prefetch: Machine, values: Values, request: int) -> Expr:
    """Whether the admission scan gets as far as the request.

    It passes those that wait for their prefetch, and stops at the first of the others if that does not fit.
    """
    admissible = {row.source for row in prefetch.transitions if row.event == "admit"}
    codes = [code_of(prefetch, state) for state in admissible]
    return all_of(~one_of(values[f"{name(other)}.state"], sorted(codes)) for other in range(request))
