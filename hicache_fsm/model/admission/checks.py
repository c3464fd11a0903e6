"""The invariants of the admission system, by their ids in spec/invariants.toml."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hicache_fsm.model.admission.queue import code_of, pins, waits
from hicache_fsm.model.admission.scope import OPERATION, Scope, name
from hicache_fsm.model.expr import TRUE, Expr, all_of, any_of, one_of, total, where
from hicache_fsm.model.system import Action, Goal, StateCheck, StepCheck
from hicache_fsm.model.tables import Path, View
from hicache_fsm.spec.types import Machine

OPERATION_OF = {"probing": "asking", "retrying": "asking", "parked": "known", "transferring": "reading"}
"""The states that wait for an operation, and how far it is in them."""

ADMITTING = frozenset(
    {"tick", "hit", "miss", "done", "fail", "unpark", "admit", "finish", "filled", "orphan_end", "wack"}
)
"""Passes, admission and what follows it, and what storage owes: all that headroom may count on."""

EMPTYING = frozenset({"flush", "detach"})
"""Steps that end the whole queue's prefetches at once: they prove no progress."""

FIRST = frozenset({"enqueue", "retract"})
"""Steps that begin an attempt, and may ask its first question."""

LEAVING = frozenset({"abort", "abandon"})
"""Steps by which a request leaves without being admitted: its own prove no progress, another's may help."""


@dataclass(frozen=True, slots=True)
class Checks:
    """Builds the checks of one admission system; `start` is the path of no steps."""

    scope: Scope
    prefetch: Machine
    pin: Machine
    start: Path

    def states(self) -> tuple[StateCheck, ...]:
        """What must hold of every state."""
        if not self.scope.constants.retries:
            return (StateCheck("disabled-inert", self._each(self._inert)),)
        return (
            StateCheck("marker-owned", self._each(self._marker_owned)),
            StateCheck("marker-once", self._each(self._marker_once)),
            StateCheck("attempts-bounded", self._each(self._within_budget)),
            StateCheck("one-in-flight", self._each(self._operation_awaited)),
            StateCheck("pin-cap", self.start.values["pinned"].le(self.scope.cap)),
            StateCheck("pin-owned", self._pin_owned()),
            StateCheck("no-residue", self._each(self._no_residue)),
            StateCheck("conservation", self._conservation()),
            StateCheck("asked-armed", self._each(self._asked_armed)),
        )

    def steps(self) -> tuple[StepCheck, ...]:
        """What must hold of every step."""
        if not self.scope.constants.retries:
            return ()
        return (
            StepCheck("attempts-bounded", self._spends),
            StepCheck("paced", self._paced),
            StepCheck("one-in-flight", self._own_answer),
            StepCheck("no-residue", self._emptied),
        )

    def goals(self) -> tuple[Goal, ...]:
        """What must stay reachable."""
        if not self.scope.constants.retries:
            return ()
        idle = self._each(lambda view: view["running"].eq(0))
        found: list[Goal] = []
        for i, view in enumerate(self._views()):
            admitted = view["state"].eq(code_of(self.prefetch, "scheduled"))
            served = admitted & view["marker"].eq(0)
            orphan = view["orphan_asking"].eq(1) | view["orphan_pages"].gt(0)
            queued = waits(self.prefetch, self.start.values, i)
            about = f"{name(i)} is admitted"
            found.append(Goal("headroom", about, idle & queued, admitted, lambda a: a.event in ADMITTING))
            found.append(Goal("progress", about, queued, served, _spares(i)))
            found.append(Goal("progress", f"the orphan of {name(i)} ends", orphan, ~orphan, _spares(i)))
        return tuple(found)

    def _views(self) -> list[View]:
        return [View(self.start, name(i)) for i in range(self.scope.requests)]

    def _each(self, holds: Callable[[View], Expr]) -> Expr:
        return all_of(holds(view) for view in self._views())

    def _in(self, view: View, *states: str) -> Expr:
        return one_of(view["state"], [code_of(self.prefetch, state) for state in states])

    def _gone(self, view: View) -> Expr:
        return self._in(view, *sorted(self.prefetch.terminal))

    def _queued(self, view: View) -> Expr:
        return view["state"].ne(0) & ~self._gone(view)

    def _inert(self, view: View) -> Expr:
        return view["marker"].eq(0) & view["waited"].eq(0) & ~self._in(view, "missed", "pending")

    def _marker_owned(self, view: View) -> Expr:
        return view["marker"].eq(0) | (self._queued(view) & view["marker"].eq(view["attempt"] + 1))

    def _marker_once(self, view: View) -> Expr:
        """While a request queues, its marker is up exactly in missed; what it leaves is marker-owned's."""
        up, missed = view["marker"].ne(0), self._in(view, "missed")
        return ~self._queued(view) | ((up & missed) | (~up & ~missed))

    def _asked_armed(self, view: View) -> Expr:
        return ~self._queued(view) | view["marker"].eq(0) | view["issued"].eq(1)

    def _within_budget(self, view: View) -> Expr:
        return view["asked"].le(self.scope.constants.max_attempts)

    def _operation_awaited(self, view: View) -> Expr:
        """A queued attempt has a live operation exactly where it waits for one, so none can be added."""
        awaited = any_of(
            self._in(view, state) & view["op"].eq(OPERATION.index(op)) for state, op in OPERATION_OF.items()
        )
        idle = ~self._in(view, *OPERATION_OF) & view["op"].eq(0)
        return ~self._queued(view) | awaited | idle

    def _pin_owned(self) -> Expr:
        """The count is that of the pins; each pin's holder queues, with something to graft on the anchor."""
        values = self.start.values
        held = total(where(pins(self.pin, values, i), size, 0) for i, size in enumerate(self.scope.anchors))
        live = all_of(
            ~pins(self.pin, values, i) | (self._queued(view) & self._fetches(view))
            for i, view in enumerate(self._views())
        )
        return values["pinned"].eq(held) & live

    def _fetches(self, view: View) -> Expr:
        return view["op"].ne(0) | view["hold"].gt(0) | self._in(view, "loaded")

    def _no_residue(self, view: View) -> Expr:
        pinned = view["pin"].eq(list(self.pin.states).index("pinned"))
        clean = view["marker"].eq(0) & ~pinned & view["op"].eq(0) & view["hold"].eq(0) & view["pages"].eq(0)
        return ~self._gone(view) | clean

    def _emptied(self, action: Action, post: Mapping[str, Expr]) -> Expr:
        """A flush or a detach leaves nothing with any request."""
        if action.event not in EMPTYING:
            return TRUE
        kept = ("marker", "op", "hold")
        empty = all_of(post[f"{view.instance}.{what}"].eq(0) for view in self._views() for what in kept)
        return empty & all_of(~pins(self.pin, post, i) for i in range(self.scope.requests))

    def _conservation(self) -> Expr:
        """Free and owned pages make the pool; owned ones are charged; storage writes into owned ones only."""
        values = self.start.values
        reading = [
            where(view["op"].eq(OPERATION.index("reading")), view["pages"], 0) for view in self._views()
        ]
        owned = total(
            read + view["hold"] + view["filling"] + view["orphan_pages"]
            for read, view in zip(reading, self._views(), strict=True)
        )
        written = all_of(
            view["io"].le(read + view["orphan_pages"])
            for read, view in zip(reading, self._views(), strict=True)
        )
        balanced = (values["host_free"] + owned).eq(self.scope.host) & values["occupied"].eq(owned)
        return balanced & values["host_free"].ge(0) & written

    def _spends(self, action: Action, post: Mapping[str, Expr]) -> Expr:
        """Every question but an attempt's first is charged to its budget."""
        if action.event in FIRST:
            return TRUE
        return all_of(
            ~self._asks(view, post) | post[f"{view.instance}.asked"].eq(view["asked"] + 1)
            for view in self._views()
        )

    def _asks(self, view: View, post: Mapping[str, Expr]) -> Expr:
        return view["op"].eq(0) & post[f"{view.instance}.op"].eq(OPERATION.index("asking"))

    def _paced(self, action: Action, post: Mapping[str, Expr]) -> Expr:
        """A pass that re-issues a question finds its miss the interval's passes old, or its hit known."""
        if action.event != "tick":
            return TRUE
        holds = TRUE
        for view in self._views():
            fresh = view["since"].lt(self.scope.constants.interval) & view["immediate"].eq(0)
            holds = holds & ~(self._in(view, "missed", "pending") & self._asks(view, post) & fresh)
        return holds

    def _own_answer(self, action: Action, post: Mapping[str, Expr]) -> Expr:
        """Nobody asks twice at once, and an orphan's answer leaves the attempt as it is."""
        if action.event in ("orphan_end", "orphan_answer"):
            return all_of(post[f"{view.instance}.state"].eq(view["state"]) for view in self._views())
        if "ask" in action.effects and action.subject >= 0:
            return View(self.start, name(action.subject))["op"].eq(0)
        return TRUE


def _spares(request: int) -> Callable[[Action], bool]:
    """Every step but those that end the request itself, or everyone's prefetch, without admitting it."""

    def allowed(action: Action) -> bool:
        own = action.event in LEAVING and action.subject == request
        return not own and action.event not in EMPTYING

    return allowed
