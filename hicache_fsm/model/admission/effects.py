"""What the effects of the prefetch, operation and pin tables do to a request and the pools."""

from collections.abc import Mapping, Sequence

from hicache_fsm.model.admission.scope import OPERATION, Scope
from hicache_fsm.model.expr import flag, where
from hicache_fsm.model.tables import Changes, Fire, Step, View
from hicache_fsm.spec.types import Machine

END = Fire("operation", "end")
TERMINATE = Fire("operation", "terminate")


def prefetch_effects(scope: Scope, pin: Machine) -> Mapping[str, Sequence[Step]]:
    """The effects of the prefetch table."""
    rules = scope.constants
    pin_codes = list(pin.states)

    def ask(view: View) -> Changes:
        """A question begins with a pin of its own, unless the attempt still holds one."""
        held = view["pin"].eq(pin_codes.index("pinned"))
        fresh = where(held, pin_codes.index("pinned"), pin_codes.index(pin.initial))
        return {"op": OPERATION.index("asking"), "pages": 0, "pin": fresh, "issued": 1}

    def raise_immediate(view: View) -> Changes:
        return {**_raise_marker(view), "immediate": int(rules.immediate_known_hit)}

    def spend_unasked(view: View) -> Changes:
        return _spend(view) if rules.spends_unasked else {}

    return {
        "ask": (ask,),
        "pin_anchor": (Fire("pin", "pin"),),
        "unpin": (Fire("pin", "unpin"),),
        "yield_pin": (Fire("pin", "yield"),),
        "raise_marker": (_raise_marker,),
        "raise_immediate": (raise_immediate,),
        "lower_marker": (lambda view: {"marker": 0, "immediate": 0},),
        "start_wait": (lambda view: {"waited": 1},),
        "count_pass": (lambda view: {"waited": view["waited"] + 1},),
        "spend": (_spend,),
        "spend_unasked": (spend_unasked,),
        "take_pages": (_take_pages, Fire("operation", "take_pages")),
        "hold_answer": (Fire("operation", "hold_answer"),),
        "end_operation": (END,),
        "stage_hold": (lambda view: {"hold": view["hold"] + view["pages"]}, END),
        "free_pages": (lambda view: _give_back(view, "pages"), END),
        "orphan_operation": (TERMINATE,),
        "cut_operation": (_keep_read, TERMINATE),
        "consume_hold": (lambda view: {"filling": view["filling"] + view["hold"], "hold": 0},),
        "release_hold": (lambda view: {**_give_back(view, "hold"), "hold": 0},),
    }


def operation_effects() -> Mapping[str, Sequence[Step]]:
    """The effects of the operation table."""
    return {"free_orphan_pages": (lambda view: _give_back(view, "orphan_pages"),)}


def pin_effects(scope: Scope) -> Mapping[str, Sequence[Step]]:
    """The effects of the pin table."""

    def size(view: View) -> int:
        return scope.anchors[int(view.instance.removeprefix("r"))]

    return {
        "lock_anchor": (lambda view: {"pinned": view["pinned"] + size(view)},),
        "unlock_anchor": (lambda view: {"pinned": view["pinned"] - size(view)},),
    }


def acknowledge_fill(view: View) -> Changes:
    """The hold has been copied to the device."""
    return {**_give_back(view, "filling"), "filling": 0}


def _raise_marker(view: View) -> Changes:
    return {"marker": view["attempt"] + 1, "immediate": 0, "since": 0}


def _spend(view: View) -> Changes:
    return {"asked": view["asked"] + 1}


def _take_pages(view: View) -> Changes:
    pages = view["pages"]
    return {
        "host_free": view["host_free"] - pages,
        "occupied": view["occupied"] + pages,
        "io": view["io"] + pages,
    }


def _give_back(view: View, what: str) -> Changes:
    return {"host_free": view["host_free"] + view[what], "occupied": view["occupied"] - view[what]}


def _keep_read(view: View) -> Changes:
    """`read` pages have arrived, at least one has not."""
    read = view.parameters.get("read", 0)
    owns = flag(view["op"].eq(OPERATION.index("reading")))
    kept = where(owns.eq(1), read, 0)
    return {"hold": view["hold"] + kept, "pages": view["pages"] - kept, "io": view["io"] - kept}
