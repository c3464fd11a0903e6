"""Compares the model, TLC and the runtime on one configuration."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hicache_fsm.conform.cases import OUT_OF_REACH, Case
from hicache_fsm.conform.compare import difference
from hicache_fsm.conform.graph import Graph
from hicache_fsm.conform.model_side import model_graph
from hicache_fsm.conform.report import Comparison, Report, Side
from hicache_fsm.conform.runtime_side import Driver, runtime_graph
from hicache_fsm.conform.tlc_side import tlc_graph
from hicache_fsm.conform.views import shared, whole
from hicache_fsm.explore import explore
from hicache_fsm.model import System
from hicache_fsm.tlc import Job, Tools, run

Tell = Callable[[str], None]
Searched = tuple[Graph, float]
"""A graph and the seconds that it took."""


@dataclass(frozen=True, slots=True)
class Sides:
    """Who is compared: the model always, TLC and the runtime where given."""

    model: System
    tlc: tuple[Tools, Job] | None = None
    runtime: Callable[[tuple[str, ...]], Driver] | None = None


def sides(case: Case, tools: Tools | None, *, runtime: bool) -> Sides:
    """The sides of a case; without `tools`, TLC is left out."""
    return Sides(
        case.system(),
        (tools, case.job()) if tools is not None else None,
        case.driver if runtime and case.has_runtime else None,
    )


def compare(case: Case, who: Sides, *, edges: bool = True, tell: Tell = lambda _: None) -> Report:
    """Compare all sides: TLC on every variable, the runtime and all others on what it knows.

    Without `edges`, and without the runtime, counts only: the way for bounds of which no graph fits into memory.
    Raises TlcError if TLC gives no verdict, DriverError if the runtime contradicts itself.
    """
    if not edges and who.runtime is None:
        return Report(case.configuration.name, case.profile, (_counts(who, tell),))
    graphs = _graphs(case, who, tell)
    found = [_states(graphs)] if who.tlc is not None else []
    if who.runtime is not None:
        found.append(_shared(case, who, who.runtime, graphs, tell))
    return Report(case.configuration.name, case.profile, tuple(found))


def _counts(who: Sides, tell: Tell) -> Comparison:
    tell("searching the model")
    result = explore(who.model, keep_edges=False)
    found = [Side("model", result.distinct, result.depth, None, result.seconds)]
    if who.tlc is not None:
        tell("searching with TLC")
        outcome = run(*who.tlc, tell)
        found.append(Side("tlc", outcome.distinct, outcome.depth, None, outcome.seconds))
    return Comparison("all variables", tuple(found), None)


def _graphs(case: Case, who: Sides, tell: Tell) -> dict[str, Searched]:
    """The graphs of the model and of TLC on every variable, labels with subjects where the side has them."""
    view = whole(who.model)
    tell("searching the model")
    graphs = {"model": _timed(lambda: model_graph(who.model, view, case.label))}
    if who.tlc is not None:
        tools, job = who.tlc
        tell("searching with TLC")
        graphs["tlc"] = _timed(lambda: tlc_graph(tools, job, who.model, view)[0])
    return graphs


def _states(graphs: Mapping[str, Searched]) -> Comparison:
    """The model and TLC on every variable."""
    bare = {name: (_bare(graph), seconds) for name, (graph, seconds) in graphs.items()}
    found = difference(("model", "tlc"), bare["model"][0], bare["tlc"][0])
    return Comparison("all variables", _sides(bare), found)


def _shared(
    case: Case,
    who: Sides,
    start: Callable[[tuple[str, ...]], Driver],
    graphs: Mapping[str, Searched],
    tell: Tell,
) -> Comparison:
    """All sides on what the runtime knows: its edges are held against the model's with their subjects."""
    view = shared(who.model)
    absent = tuple(sorted(OUT_OF_REACH & {action.event for action in who.model.actions}))
    seen = {
        name: (_reachable(graph.projected(view.names, view.of)), seconds)
        for name, (graph, seconds) in graphs.items()
    }

    def told(depth: int, states: int) -> None:
        tell(f"driving the runtime: {states:,} states, depth {depth}")

    tell("driving the runtime")
    seen["runtime"] = _timed(lambda: runtime_graph(start(view.names), told))
    found = difference(("model", "runtime"), seen["model"][0], seen["runtime"][0])
    bare = {name: (_bare(graph), seconds) for name, (graph, seconds) in seen.items()}
    if "tlc" in bare:
        found = found or difference(("model", "tlc"), bare["model"][0], bare["tlc"][0])
    return Comparison("what the runtime knows", _sides(bare), found, absent)


def _bare(graph: Graph) -> Graph:
    """The same without subjects, which TLC's labels lack."""
    return graph.relabelled(_event)


def _reachable(graph: Graph) -> Graph:
    """What is left without the events that no public call brings about."""
    return graph.relabelled(lambda label: None if _event(label) in OUT_OF_REACH else label)


def _event(label: str) -> str:
    return label.partition(" ")[0]


def _sides(graphs: Mapping[str, Searched]) -> tuple[Side, ...]:
    return tuple(
        Side(name, graph.distinct, graph.depth, graph.steps, seconds)
        for name, (graph, seconds) in graphs.items()
    )


def _timed(search: Callable[[], Graph]) -> Searched:
    started = time.perf_counter()
    return search(), time.perf_counter() - started
