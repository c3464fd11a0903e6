"""What the states and guards of the prefetch, operation and pin tables mean in the admission system."""

from collections.abc import Callable, Mapping

from hicache_fsm.model.admission.effects import operation_effects, pin_effects, prefetch_effects
from hicache_fsm.model.admission.queue import code_of, heads, waits
from hicache_fsm.model.admission.scope import OPERATION, Scope
from hicache_fsm.model.expr import FALSE, TRUE, Expr, truth
from hicache_fsm.model.tables import Changes, Free, Meaning, Tables, View
from hicache_fsm.spec.types import Machine, Spec, Transition

Guards = Mapping[str, Callable[[View], Expr | Free]]

FORGOTTEN: Changes = {"asked": 0, "issued": 0, "attempt": 0}
"""What nobody reads of a request that is gone becomes 0, so that only leaks tell such requests apart."""


def admission_tables(spec: Spec, scope: Scope) -> Tables:
    """The three machines' tables, ready to be applied to a request."""
    prefetch, operation, pin = (spec.machines[name] for name in ("prefetch", "operation", "pin"))
    meanings = {
        "prefetch": Meaning(
            prefetch,
            lambda view, state: view["state"].eq(code_of(prefetch, state)),
            _enter_prefetch(prefetch),
            _prefetch_guards(scope, prefetch),
            prefetch_effects(scope, pin),
        ),
        "operation": Meaning(operation, _in_operation, _enter_operation, {}, operation_effects()),
        "pin": Meaning(
            pin,
            lambda view, state: view["pin"].eq(list(pin.states).index(state)),
            lambda view, source, dest: {"pin": list(pin.states).index(dest)},
            _pin_guards(scope, prefetch),
            pin_effects(scope),
        ),
    }
    return Tables(meanings, _skips(scope))


def _enter_prefetch(prefetch: Machine) -> Callable[[View, str, str], Changes]:
    def enter(view: View, source: str, dest: str) -> Changes:
        changes: dict[str, Expr | int] = {"state": code_of(prefetch, dest)}
        if dest != "pending":
            changes["waited"] = 0
        if dest not in ("missed", "pending"):
            changes["since"] = 0
        if dest == "scheduled":
            changes["running"] = 1
        if dest == "aborted":
            changes |= FORGOTTEN
        return changes

    return enter


def _in_operation(view: View, state: str) -> Expr:
    if state == "orphan":
        return view["orphan_asking"].eq(1) | view["orphan_pages"].gt(0)
    return view["op"].eq(OPERATION.index(state)) if state in OPERATION else FALSE


def _enter_operation(view: View, source: str, dest: str) -> Changes:
    """Orphans of a request are one: it asks if any does, owns what all own, and ends with the last."""
    if source == "orphan":
        return {"orphan_asking": 0, "orphan_pages": 0} if dest == "ended" else {}
    if dest in OPERATION:
        return {"op": OPERATION.index(dest)}
    gone: Changes = {"op": 0, "pages": 0}
    if dest == "ended":
        return gone
    if source == "reading":
        return {**gone, "orphan_pages": view["orphan_pages"] + view["pages"]}
    return {**gone, "orphan_asking": 1}


def _prefetch_guards(scope: Scope, prefetch: Machine) -> Guards:
    rules = scope.constants
    armed = rules.arms
    reasons = (rules.arms_too_short, rules.arms_limited)

    def budget_left(view: View) -> Expr:
        return view["asked"].lt(rules.max_attempts)

    def asks_tail(view: View) -> Expr:
        partial = (view["hold"] + view["pages"]).lt(scope.chain)
        return truth(rules.requeries_tail and armed) & partial & budget_left(view)

    def head_exempt(view: View) -> Expr:
        request = int(view.instance.removeprefix("r"))
        return truth(rules.head_rule) & heads(prefetch, view.path.values, request)

    return {
        "asks": lambda view: Free(TRUE, TRUE),
        "room": lambda view: view["host_free"].ge(view["pages"]),
        "arms": lambda view: truth(armed),
        "arms_unasked": lambda view: Free(truth(armed and any(reasons)), truth(not (armed and all(reasons)))),
        "arms_cut": lambda view: truth(armed and rules.arms_cut),
        "arms_shrunk": lambda view: truth(armed and rules.requeries_lost_match),
        "paces": lambda view: truth(rules.retries),
        "parks": lambda view: truth(rules.parks) & view["hold"].eq(0),
        "parks_pinned": lambda view: truth(rules.parks_pinned),
        "retries_failed": lambda view: truth(rules.retries_failed and armed),
        "asks_tail": asks_tail,
        "budget_left": budget_left,
        "due": lambda view: scope.due(view["waited"]),
        "immediate": lambda view: view["immediate"].eq(1),
        "head_exempt": head_exempt,
        "leaky_door": lambda view: truth(rules.leaky_door),
    }


def _pin_guards(scope: Scope, prefetch: Machine) -> Guards:
    def fits(view: View) -> Expr:
        return (view["pinned"] + scope.anchors[int(view.instance.removeprefix("r"))]).le(scope.cap)

    def holder_gone(view: View) -> Expr:
        return ~waits(prefetch, view.path.values, int(view.instance.removeprefix("r")))

    return {"anchored": lambda view: view["anchored"].eq(1), "fits": fits, "holder_gone": holder_gone}


def _skips(scope: Scope) -> Callable[[str, Transition], bool]:
    late = not scope.constants.pins_early
    return lambda effect, row: late and effect == "pin_anchor" and "ask" in row.effects
