"""What happens eventually in each system, and the weak fairness that it takes, as tla/*.tla have it.

A group of steps is weakly fair if it cannot stay enabled for ever without one of them being taken.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from hicache_fsm.model.admission.queue import waits
from hicache_fsm.model.expr import FALSE, TRUE, Expr, all_of, any_of, one_of, truth, variable
from hicache_fsm.model.system import Action, System
from hicache_fsm.spec.types import Spec

Owes = Callable[[Action], Expr]
"""In which states a step of an action counts: FALSE never, TRUE always."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """A weakly fair group: who owes it (the scheduler, or storage), and which steps are in it."""

    name: str
    by: str
    steps: Owes


@dataclass(frozen=True, slots=True)
class Liveness:
    """From every state with `start` a state with `goal` follows.

    One that `stays` says more, that `goal` holds for ever from some time on, of the runs that take but the steps
    `eventually` from some time on.  `takes` are other invariants without which it cannot hold: a profile that is
    known to break one of them breaks it, too.
    """

    name: str
    invariant: str
    about: str
    start: Expr
    goal: Expr
    stays: bool = False
    eventually: Owes = lambda action: TRUE
    takes: tuple[str, ...] = ()


SETTLED: Final = ("queued", "exhausted")
"""Where a rank's prefetch has come to its end while the request waits for admission."""


def liveness(spec: Spec, system: System) -> list[Liveness]:
    """What happens eventually in a system; nothing is said of one whose retries are off."""
    match system.name:
        case "admission":
            return [*_admission(spec, system)]
        case "belief":
            return [_heals(system)]
        case "node":
            return [*_loads(system)]
        case "ranks":
            settled = all_of(_at(system, name, *SETTLED) for name in _named(system, "state"))
            return [
                Liveness("settles", "progress", "every rank's prefetch settles", TRUE, settled, stays=True)
            ]
    return []


def fairness(system: System) -> list[Fairness]:
    """Everything that is owed: passes, admission and drains by the scheduler, answers by storage."""
    match system.name:
        case "admission":
            return [*_admission_fairness(system)]
        case "belief":
            return [*_belief_fairness(system)]
        case "node":
            pairs = {
                (a.subject, (a.parameters or {})["loader"]) for a in system.actions if a.event == "loaded"
            }
            return [
                Fairness(f"loaded n{n} by l{loader}", "storage", _only("loaded", subject=n, loader=loader))
                for n, loader in sorted(pairs)
            ]
        case "ranks":
            ranks = len(_named(system, "state"))
            arrivals = [Fairness(f"arrive k{k}", "storage", _only("arrive", subject=k)) for k in range(ranks)]
            return [Fairness("pass", "scheduler", _only("pass")), *arrivals]
    return []


def _named(system: System, short: str) -> list[str]:
    return [each.name for each in system.layout.variables if each.name.endswith(f".{short}")]


def _at(system: System, name: str, *states: str) -> Expr:
    names = system.layout.variables[system.layout.index[name]].names
    return one_of(variable(name), [names.index(state) for state in states])


def _only(*events: str, subject: int | None = None, loader: int | None = None) -> Owes:
    def steps(action: Action) -> Expr:
        mine = subject in (None, action.subject)
        its = loader is None or (action.parameters or {}).get("loader") == loader
        return truth(action.event in events and mine and its)

    return steps


def _admission(spec: Spec, system: System) -> Iterator[Liveness]:
    prefetch = spec.machines["prefetch"]
    values = {each.name: variable(each.name) for each in system.layout.variables}
    requests = range(len(_named(system, "marker")))
    here = [waits(prefetch, values, i) for i in requests]
    for i in requests:
        up, orphaned = values[f"r{i}.marker"].ne(0), _orphaned(i)
        about = f"r{i} is admitted or leaves"
        yield Liveness("progress", "progress", about, here[i], ~here[i], takes=("headroom", "no-residue"))
        about = f"the marker of r{i} is served or dropped"
        yield Liveness("marker-served", "progress", about, up, ~up, takes=("marker-owned",))
        yield Liveness("orphans-end", "progress", f"the orphan of r{i} ends", orphaned, ~orphaned)
    idle, some = all_of(values[f"r{i}.running"].eq(0) for i in requests), any_of(here)
    about = "somebody runs, or all leave"
    yield Liveness("headroom", "headroom", about, idle & some, ~idle | ~some, takes=("no-residue",))


def _orphaned(request: int) -> Expr:
    return variable(f"r{request}.orphan_asking").eq(1) | variable(f"r{request}.orphan_pages").gt(0)


def _admission_fairness(system: System) -> Iterator[Fairness]:
    yield Fairness("tick", "scheduler", _only("tick"))
    for i in range(len(_named(system, "marker"))):
        for event in ("admit", "finish", "filled", "unpark"):
            yield Fairness(f"{event} r{i}", "scheduler", _only(event, subject=i))
        for events in (("hit", "miss"), ("done", "fail"), ("orphan_end",)):
            yield Fairness(f"{' or '.join(events)} r{i}", "storage", _only(*events, subject=i))


def _belief_fairness(system: System) -> Iterator[Fairness]:
    for page, name in enumerate(_named(system, "state")):
        who = name.removesuffix(".state")
        yield Fairness(f"write {who}", "scheduler", _only("write", subject=page))
        yield Fairness(f"stored {who}", "storage", _only("stored", subject=page))
    yield Fairness("fetch", "scheduler", _only("fetch"))
    yield Fairness("the fetch ends", "storage", lambda action: _ended_honestly(system, action))


def _heals(system: System) -> Liveness:
    whole = all_of(
        variable(name.replace(".state", ".stored")).eq(1) & _at(system, name, "believed")
        for name in _named(system, "state")
    )

    def quiet(action: Action) -> Expr:
        kept = truth(action.event in ("write", "stored", "ask", "fetch"))
        return kept | _ended_honestly(system, action)

    about = "every page is stored and believed, for ever, once storage stops losing pages"
    return Liveness("heals", "heals", about, TRUE, whole, stays=True, eventually=quiet)


def _ended_honestly(system: System, action: Action) -> Expr:
    """Where the fetch that ends was served all that storage holds."""
    if action.event not in ("done", "discard"):
        return FALSE
    chosen = action.parameters or {}
    chain = sum(name.startswith("kv") for name in _named(system, "state"))
    trailing = sum(name.startswith("aux") for name in _named(system, "state"))
    return _stops("kv", chosen["done"], chain) & _stops("aux", chain - trailing + chosen["hit"], chain)


def _stops(pool: str, page: int, chain: int) -> Expr:
    """Whether the first page that was not served is not stored; past the chain's end there is none."""
    return truth(page == chain) if page == chain else variable(f"{pool}{page}.stored").eq(0)


def _loads(system: System) -> Iterator[Liveness]:
    for name in _named(system, "state"):
        loading = _at(system, name, "loading")
        who = name.removesuffix(".state")
        yield Liveness("loads-end", "progress", f"the load-back of {who} ends", loading, ~loading)
