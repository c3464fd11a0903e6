"""Ranks that each run the same request's prefetch and must issue the same questions on the same pass.

Storage misses every question, at its own time on each rank, so that pacing is what ranks could disagree on;
another request heads the queue.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from hicache_fsm.model.build import actions, start
from hicache_fsm.model.expr import FALSE, TRUE, Expr, all_of, flag, minimum, one_of, truth
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action, StateCheck, System
from hicache_fsm.model.tables import Changes, Fire, Free, Meaning, Step, Tables, View
from hicache_fsm.rules import retry_due
from hicache_fsm.spec.types import Constants, Machine, Spec

UNMODELLED = (
    "pin_anchor", "unpin", "yield_pin", "raise_immediate", "take_pages", "hold_answer", "stage_hold", "free_pages",
    "orphan_operation", "cut_operation", "consume_hold", "release_hold",
)  # fmt: skip
"""Effects on pins and pages, which ranks share through the same decisions."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A ranks system's bounds, beside the constants: how many ranks there are."""

    constants: Constants
    ranks: int

    def due(self, waited: Expr) -> Expr:
        """Whether this sweep, the one after `waited` others, re-issues the question."""
        interval = self.constants.interval
        return one_of(waited, [passes for passes in range(interval + 1) if retry_due(passes, interval)])

    @property
    def others(self) -> tuple[Expr, ...]:
        """For each rank that is not modelled, whether its answer has arrived."""
        return ()


def ranks_system(
    spec: Spec, profile: str, name: str, configuration: str, scope: Scope, layout: Layout | None = None
) -> System:
    """Answers arrive rank by rank; a joint pass drains them, sweeps, and may re-issue the question.

    `layout` replaces the variables that the bounds give, by the same names.
    """
    machine = spec.machines["prefetch"]
    if layout is None:
        layout = Layout(_variables(scope, machine))
    begin = View(start(layout), "k0")
    tables = Tables({"prefetch": _meaning(scope, machine)})
    decided = [View(begin.path, f"k{k}")["asks_now"] for k in range(scope.ranks)]
    return System(
        name,
        configuration,
        profile,
        layout,
        _initial(scope, machine, layout),
        (*_arrivals(scope, layout, begin), *_passes(scope, layout, tables, begin)),
        (StateCheck("lockstep", all_of(one.eq(other) for one, other in combinations(decided, 2))),),
    )


def _variables(scope: Scope, machine: Machine) -> Iterator[Variable]:
    rules = scope.constants
    for k in range(scope.ranks):
        yield Variable(
            f"k{k}.state", len(machine.states) - 1, "The rank's prefetch state.", names=tuple(machine.states)
        )
        yield Variable(f"k{k}.asking", 1, "A question of the rank is with storage.")
        yield Variable(f"k{k}.arrived", 1, "Its answer has arrived and is not drained.")
        yield Variable(f"k{k}.marker", 1, "The miss marker is up.")
        yield Variable(f"k{k}.asked", rules.max_attempts + 1, "Re-issues spent.", saturating=True)
        yield Variable(f"k{k}.waited", rules.interval, "Sweeps counted while pending.", saturating=True)
        yield Variable(f"k{k}.asks_now", 1, "The last pass issued a question on this rank.")


def _initial(scope: Scope, machine: Machine, layout: Layout) -> Mapping[str, int]:
    """Every rank has just asked."""
    values = {variable.name: 0 for variable in layout.variables}
    for k in range(scope.ranks):
        values |= {f"k{k}.state": list(machine.states).index("probing"), f"k{k}.asking": 1}
    return values


def _meaning(scope: Scope, machine: Machine) -> Meaning:
    rules = scope.constants
    codes = {state: code for code, state in enumerate(machine.states)}

    def is_due(view: View) -> Expr | Free:
        """By the clock, a rank is due when its own clock says so."""
        return Free(TRUE, TRUE) if rules.pacing == "clock" else scope.due(view["waited"])

    def asks(view: View) -> Expr:
        """Whether a question can be issued is agreed: it depends on the request and agreed occupancy."""
        return truth(bool(view.parameters["asks"]))

    def spend(view: View) -> Changes:
        return {"asked": view["asked"] + 1}

    guards: dict[str, Callable[[View], Expr | Free]] = {
        "asks": asks,
        "arms": lambda view: truth(rules.arms),
        "paces": lambda view: truth(rules.retries),
        "arms_unasked": lambda view: truth(rules.arms and rules.arms_limited),
        "budget_left": lambda view: view["asked"].lt(rules.max_attempts),
        "due": is_due,
        "immediate": lambda view: FALSE,
        "head_exempt": lambda view: FALSE,
    }
    effects: dict[str, tuple[Step | Fire, ...]] = {
        "ask": (lambda view: {"asking": 1, "asks_now": 1},),
        "end_operation": (lambda view: {"asking": 0},),
        "raise_marker": (lambda view: {"marker": 1},),
        "lower_marker": (lambda view: {"marker": 0},),
        "start_wait": (lambda view: {"waited": 1},),
        "count_pass": (lambda view: {"waited": view["waited"] + 1},),
        "spend": (spend,),
        "spend_unasked": (spend if rules.spends_unasked else lambda view: {},),
        **dict.fromkeys(UNMODELLED, ()),
    }

    def enter(view: View, source: str, dest: str) -> Changes:
        waited = view["waited"] if dest == "pending" else 0
        return {"state": codes[dest], "waited": waited}

    return Meaning(machine, lambda view, state: view["state"].eq(codes[state]), enter, guards, effects)


def _arrivals(scope: Scope, layout: Layout, begin: View) -> Iterator[Action]:
    for k in range(scope.ranks):
        view = replace(begin, instance=f"k{k}")
        arrives = view.assuming(view["asking"].eq(1) & view["arrived"].eq(0)).change({"arrived": 1})
        yield from actions(layout, f"answer reaches k{k}", "arrive", k, [arrives])


def _passes(scope: Scope, layout: Layout, tables: Tables, begin: View) -> Iterator[Action]:
    """One pass on all ranks: each drains as many answers as are agreed, or as it has, then sweeps."""
    rules = scope.constants
    if not rules.retries:
        return
    arrived = [replace(begin, instance=f"k{k}")["arrived"] for k in range(scope.ranks)]
    agreed = arrived[0]
    for other in (*arrived[1:], *scope.others):
        agreed = minimum(agreed, other)
    for asks in (0, 1):
        views = [replace(begin, parameters={"asks": asks})]
        for k in range(scope.ranks):
            drains = (agreed if rules.agreed_drains else arrived[k]).eq(1)
            views = [
                after for view in views for after in _pass(tables, replace(view, instance=f"k{k}"), drains)
            ]
        yield from actions(layout, f"pass{'' if asks else ', nothing to ask'}", "pass", -1, views)


def _pass(tables: Tables, view: View, drains: Expr) -> list[View]:
    before = view.change({"asks_now": 0, "arrived": view["arrived"] - flag(drains)})
    drained = tables.fire(before, "prefetch", "miss", drains, also=lambda view, source: drains)
    return [after for each in drained for after in tables.fire(each, "prefetch", "sweep")]
