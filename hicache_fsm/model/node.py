"""Nodes of the radix tree with a full and an SWA side, pinned by holders and claimed by load-backs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hicache_fsm.model.build import actions, start
from hicache_fsm.model.expr import TRUE, Expr, all_of, any_of, flag, one_of, total
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action, StateCheck, System
from hicache_fsm.model.tables import Changes, Meaning, Path, Tables, View, label
from hicache_fsm.spec.types import Machine, Spec


@dataclass(frozen=True, slots=True)
class Scope:
    """A node system's bounds.

    `nodes` on the device at first, `loaders` that bring back one at a time each, `holders` that may pin a
    node, `full` and `swa` slots in the pools: a node takes one slot of each.
    """

    nodes: int
    loaders: int
    holders: int
    full: int
    swa: int


def node_system(
    spec: Spec, profile: str, name: str, configuration: str, scope: Scope, layout: Layout | None = None
) -> System:
    """Pins, tombstones, evictions and load-backs of nodes.  No constant of a profile is read.

    `layout` replaces the variables that the bounds give, by the same names.
    """
    machine = spec.machines["node"]
    if layout is None:
        layout = Layout([*_nodes(scope, machine), *_pools(scope)])
    begin = start(layout)
    steps = _Steps(scope, Tables({"node": _meaning(scope, machine)}), layout, begin)
    return System(
        name,
        configuration,
        profile,
        layout,
        _initial(scope, machine, layout),
        tuple(steps.all()),
        _checks(scope, machine, begin),
    )


def _nodes(scope: Scope, machine: Machine) -> Iterator[Variable]:
    for n in range(scope.nodes):
        yield Variable(
            f"n{n}.state", len(machine.states) - 1, "The node's state.", names=tuple(machine.states)
        )
        yield Variable(f"n{n}.holders", scope.holders + 1, "Holders that pin it.", saturating=True)
        yield Variable(f"n{n}.full", 1, "It owns a slot of the full pool.")
        yield Variable(f"n{n}.swa", 1, "It owns a slot of the SWA pool.")
        for loader in range(scope.loaders):
            yield Variable(f"n{n}.claim{loader}", 1, "This load-back has claimed it and is not acknowledged.")


def _pools(scope: Scope) -> Iterator[Variable]:
    yield Variable("full_free", scope.full + 1, "Free slots of the full pool.", low=-1, saturating=True)
    yield Variable("swa_free", scope.swa + 1, "Free slots of the SWA pool.", low=-1, saturating=True)


def _initial(scope: Scope, machine: Machine, layout: Layout) -> Mapping[str, int]:
    """Every node is on the device, held by nobody."""
    values = {variable.name: 0 for variable in layout.variables}
    for n in range(scope.nodes):
        values |= {
            f"n{n}.state": list(machine.states).index(machine.initial),
            f"n{n}.full": 1,
            f"n{n}.swa": 1,
        }
    return {**values, "full_free": scope.full - scope.nodes, "swa_free": scope.swa - scope.nodes}


def _meaning(scope: Scope, machine: Machine) -> Meaning:
    codes = {state: code for code, state in enumerate(machine.states)}

    def claim(view: View) -> Changes:
        """The load-back takes a slot for each side that is missing."""
        return {
            f"claim{view.parameters['loader']}": 1,
            "full": 1,
            "swa": 1,
            "full_free": view["full_free"] - flag(view["full"].eq(0)),
            "swa_free": view["swa_free"] - flag(view["swa"].eq(0)),
        }

    def free_full(view: View) -> Changes:
        return {"full": 0, "full_free": view["full_free"] + 1}

    def free_swa(view: View) -> Changes:
        return {"swa": 0, "swa_free": view["swa_free"] + 1}

    return Meaning(
        machine,
        lambda view, state: view["state"].eq(codes[state]),
        lambda view, source, dest: {"state": codes[dest]},
        {
            "unclaimed": lambda view: all_of(view[f"claim{other}"].eq(0) for other in range(scope.loaders)),
            "owner": lambda view: view[f"claim{view.parameters['loader']}"].eq(1),
            "last_holder": lambda view: view["holders"].le(1),
        },
        {
            "count_holder": (lambda view: {"holders": view["holders"] + 1},),
            "drop_holder": (lambda view: {"holders": view["holders"] - 1},),
            "claim": (claim,),
            "unclaim": (lambda view: {f"claim{view.parameters['loader']}": 0},),
            "free_swa": (free_swa,),
            "free_both": (lambda view: {**free_full(view), **free_swa(view)},),
            "free_full": (free_full,),
        },
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    scope: Scope
    tables: Tables
    layout: Layout
    begin: Path

    def all(self) -> Iterator[Action]:
        for n in range(self.scope.nodes):
            view = View(self.begin, f"n{n}")
            room = view["holders"].lt(self.scope.holders)
            yield from self._event("pin", n, view, room)
            for event in ("unpin", "tombstone", "evict"):
                yield from self._event(event, n, view, TRUE)
            for loader in range(self.scope.loaders):
                by = replace(view, parameters={"loader": loader})
                yield from self._event("load", n, by, ~self._busy(loader) & self._slots(view))
                yield from self._event("loaded", n, by, self._busy(loader))

    def _event(self, event: str, n: int, view: View, happens: Expr) -> Iterator[Action]:
        machine = self.tables.meanings["node"].machine
        by = f" by l{view.parameters['loader']}" if view.parameters else ""
        for row in machine.transitions:
            if row.event == event:
                after = self.tables.take(view, "node", [row], happens)
                text = f"node.{label(row, f'n{n}')}{by}"
                yield from actions(self.layout, text, event, n, after, row.effects)

    def _busy(self, loader: int) -> Expr:
        """Whether the load-back is in flight, for whichever node."""
        claims = [self.begin.values[f"n{n}.claim{loader}"] for n in range(self.scope.nodes)]
        return any_of(claim.eq(1) for claim in claims)

    def _slots(self, view: View) -> Expr:
        """Whether the pools have what the node is missing."""
        full = view["full"].eq(1) | view["full_free"].gt(0)
        return full & (view["swa"].eq(1) | view["swa_free"].gt(0))


def _checks(scope: Scope, machine: Machine, begin: Path) -> tuple[StateCheck, ...]:
    values = begin.values
    views = [View(begin, f"n{n}") for n in range(scope.nodes)]

    def owned(side: str) -> Expr:
        return total(view[side] for view in views)

    def claims(view: View) -> Expr:
        return total(view[f"claim{loader}"] for loader in range(scope.loaders))

    def within(view: View, *states: str) -> Expr:
        return one_of(view["state"], [list(machine.states).index(state) for state in states])

    def sides(view: View) -> Expr:
        """Whether the node owns the slots that its state stands for, in flight or not."""
        full = flag(~within(view, "evicted"))
        swa = flag(~within(view, "evicted", "tombstoned"))
        return view["full"].eq(full) & view["swa"].eq(swa)

    def pinned(view: View) -> Expr:
        """Whether the node has holders where its state says so, and nowhere else."""
        held = flag(within(view, "pinned"))
        return flag(view["holders"].gt(0)).eq(held)

    exact = (values["full_free"] + owned("full")).eq(scope.full) & (values["swa_free"] + owned("swa")).eq(
        scope.swa
    )
    once = (values["full_free"] + owned("full")).le(scope.full) & (values["swa_free"] + owned("swa")).le(
        scope.swa
    )
    exclusive = all_of(claims(view).eq(flag(within(view, "loading"))) for view in views)
    return (
        StateCheck("load-exclusive", exclusive),
        StateCheck("tombstone-once", once & all_of(sides(view) for view in views)),
        StateCheck("conservation", exact & all_of(pinned(view) for view in views)),
    )
