"""The theories of the admission and node systems: the spec's invariants, and the lemmas that strengthen them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hicache_fsm.model.admission.queue import code_of, fits_device, pins, waits
from hicache_fsm.model.admission.scope import OPERATION, Scope, name
from hicache_fsm.model.build import start
from hicache_fsm.model.expr import Expr, all_of, one_of, total, variable, where
from hicache_fsm.model.layout import Layout
from hicache_fsm.model.tables import View
from hicache_fsm.prove.conjuncts import Conjunct, StepClaim, Theory
from hicache_fsm.prove.parametric import Parametric
from hicache_fsm.prove.reaching import Ways
from hicache_fsm.spec.types import Machine, Spec

NEEDS: Mapping[str, tuple[str, ...]] = {
    "marker-owned": ("running-scheduled",),
    "marker-once": ("ranges", "outside-clean", "running-scheduled"),
    "attempts-bounded": ("pending-affords",),
    "one-in-flight": ("outside-clean", "running-scheduled"),
    "pin-owned": ("ranges", "pages-known", "running-scheduled", "pinned-anchored"),
    "no-residue": ("one-in-flight", "pages-known"),
    "conservation": ("ranges", "one-in-flight", "outside-clean", "running-scheduled"),
    "asked-armed": ("one-in-flight", "outside-clean", "running-scheduled", "asked-issued"),
    "headroom": ("pin-cap",),
    "outside-clean": ("one-in-flight", "pages-known"),
    "pending-affords": ("running-scheduled",),
    "waits-counted": ("ranges",),
    "asked-issued": ("outside-clean", "pages-known", "running-scheduled"),
    "pinned-anchored": ("outside-clean",),
    "within-chain": ("ranges",),
    "pins-counted": ("outside-clean", "running-scheduled"),
}
"""What the induction step of a conjunct leans on beside itself; found by leaving out all that it can do without."""

STEP_NEEDS: Mapping[str, tuple[str, ...]] = {
    "paced": ("waits-counted",),
    "one-in-flight": ("one-in-flight", "outside-clean", "running-scheduled"),
    "no-residue": ("no-residue", "ranges", "outside-clean"),
}

NODE_NEEDS: Mapping[str, tuple[str, ...]] = {
    "conservation": ("tombstone-once", "ranges"),
    "ranges": ("conservation",),
}

BALANCES = frozenset({"host_free", "occupied", "pinned", "io", "full_free", "swa_free"})
"""Numbers that conservation and pin-owned keep in their ranges; those of the others are a lemma."""

RANGES = "amounts count from 0 up, and codes name a state"

ENUMERATED = frozenset({"state", "op", "pin"})


def admission_theory(spec: Spec, system: Parametric, scope: Scope) -> Theory:
    """The invariants of the admission system, with headroom as a state condition, and their lemmas."""
    prefetch, pin = spec.machines["prefetch"], spec.machines["pin"]
    claims = [(check.invariant, check.holds) for check in system.states]
    if scope.constants.retries:
        claims.append(("headroom", _headroom(prefetch, pin, system.layout, scope)))
    lemmas = [
        ("ranges", _ranges(system.layout), RANGES),
        ("pins-counted", _pins_counted(pin, system.layout, scope), "what is pinned is what the pins hold"),
        *_Lemmas(prefetch, pin, system.layout, scope).all(),
    ]
    return Theory(
        (
            *(Conjunct(name, holds, NEEDS.get(name, ())) for name, holds in claims),
            *(Conjunct(name, holds, NEEDS.get(name, ()), why) for name, holds, why in lemmas),
        ),
        tuple(StepClaim(check, STEP_NEEDS.get(check.invariant, ())) for check in system.steps),
        tuple(Ways(scope, prefetch, pin, system.layout).all()) if scope.constants.retries else (),
    )


def node_theory(system: Parametric) -> Theory:
    """The invariants of the node system."""
    claims = (Conjunct(c.invariant, c.holds, NODE_NEEDS.get(c.invariant, ())) for c in system.states)
    return Theory((*claims, Conjunct("ranges", _ranges(system.layout), NODE_NEEDS["ranges"], RANGES)), ())


def _headroom(prefetch: Machine, pin: Machine, layout: Layout, scope: Scope) -> Expr:
    """With nothing running, each queued request has room, if the device is large enough for it at all."""
    values = start(layout).values
    requests = range(scope.requests)
    runs = [values[f"{name(i)}.running"].ne(0) for i in requests]
    large = (variable("context") + 1).le(variable("device"))
    room = all_of(~waits(prefetch, values, i) | fits_device(scope, pin, values, i) for i in requests)
    return ~(large & all_of(~one for one in runs)) | room


def _pins_counted(pin: Machine, layout: Layout, scope: Scope) -> Expr:
    values = start(layout).values
    return values["pinned"].eq(
        total(where(pins(pin, values, i), size, 0) for i, size in enumerate(scope.anchors))
    )


def _ranges(layout: Layout) -> Expr:
    found: list[Expr] = []
    for each in layout.variables:
        short = each.name.rpartition(".")[2]
        if short not in BALANCES:
            value = variable(each.name)
            found.append(value.ge(0))
            if each.high == 1 or short in ENUMERATED:
                found.append(value.le(each.high))
    return all_of(found)


@dataclass(frozen=True, slots=True)
class _Lemmas:
    prefetch: Machine
    pin: Machine
    layout: Layout
    scope: Scope

    def all(self) -> Iterator[tuple[str, Expr, str]]:
        """Each lemma's name, what it says of every request, and that in words."""
        for lemma, holds, why in (
            (
                "outside-clean",
                self._outside_clean,
                "who may still be queued, absent or scheduled, holds nothing",
            ),
            (
                "pages-known",
                self._pages_known,
                "an operation has pages exactly while its hit is known or read",
            ),
            ("running-scheduled", self._running_scheduled, "only a scheduled request runs"),
            ("pending-affords", self._pending_affords, "who counts passes has budget left for a question"),
            ("waits-counted", self._waits_counted, "no more sweeps are counted than passes since the miss"),
            ("asked-issued", self._asked_issued, "who waits for an answer, or has one, issued a question"),
            ("pinned-anchored", self._pinned_anchored, "a pinned anchor is on the device"),
            ("parked-empty", self._parked_empty, "who waits for room holds no page that another waits for"),
            ("within-chain", self._within_chain, "nothing is longer than the chain"),
        ):
            views = (View(start(self.layout), name(i)) for i in range(self.scope.requests))
            yield lemma, all_of(holds(view) for view in views), why

    def _in(self, view: View, *states: str) -> Expr:
        return one_of(view["state"], [code_of(self.prefetch, state) for state in states])

    def _op(self, view: View, *states: str) -> Expr:
        return one_of(view["op"], [OPERATION.index(state) for state in states])

    def _pinned(self, view: View) -> Expr:
        return view["pin"].eq(list(self.pin.states).index("pinned"))

    def _outside_clean(self, view: View) -> Expr:
        nothing = [view[what].eq(0) for what in ("marker", "op", "pages", "hold")]
        clean = all_of(nothing) & ~self._pinned(view)
        fresh = all_of(view[what].eq(0) for what in ("asked", "attempt"))
        absent, scheduled = view["state"].eq(0), self._in(view, "scheduled")
        return (~(absent | scheduled) | clean) & (~absent | fresh)

    def _pages_known(self, view: View) -> Expr:
        known = self._op(view, "known", "reading")
        return (known & view["pages"].gt(0)) | (~known & view["pages"].eq(0))

    def _running_scheduled(self, view: View) -> Expr:
        return view["running"].eq(0) | self._in(view, "scheduled")

    def _pending_affords(self, view: View) -> Expr:
        budget = self.scope.constants.max_attempts
        return ~self._in(view, "pending") | view["asked"].lt(budget)

    def _waits_counted(self, view: View) -> Expr:
        return ~self._in(view, "pending") | view["waited"].le(view["since"])

    def _asked_issued(self, view: View) -> Expr:
        gone = self._in(view, *sorted(self.prefetch.terminal))
        asked = view["op"].ne(0) | self._in(view, "loaded")
        return gone | ~asked | view["issued"].eq(1)

    def _parked_empty(self, view: View) -> Expr:
        return ~self._op(view, "known") | view["hold"].eq(0)

    def _within_chain(self, view: View) -> Expr:
        chain = variable("chain")
        return view["stored"].le(chain) & (view["hold"] + view["pages"]).le(chain)

    def _pinned_anchored(self, view: View) -> Expr:
        return ~self._pinned(view) | view["anchored"].eq(1)
