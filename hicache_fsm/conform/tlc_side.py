"""TLC's search of the hand-written TLA+ as a graph, in the model's words."""

import re
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from hicache_fsm.conform import dump
from hicache_fsm.conform.graph import Edge, Graph, State
from hicache_fsm.conform.views import View
from hicache_fsm.model import System
from hicache_fsm.tlc import Job, Outcome, Tools, run
from hicache_fsm.tlc.output import state as read_state
from hicache_fsm.tlc.values import Value, show

INSTANCES: Final[Mapping[str, str]] = {
    "admission": "r",
    "admission-disabled": "r",
    "ranks": "k",
    "node": "",
    "belief": "",
}
"""What stands before the number of an instance in the model."""

RENAMED: Final[Mapping[str, str]] = {"ask_chain": "ask", "belief": "state"}
"""Names that a TLA+ module could not use."""

CLAIM: Final = re.compile(r"(n\d+)\.claim(\d+)")


def tlc_graph(tools: Tools, job: Job, system: System, view: View) -> tuple[Graph, Outcome]:
    """Search the model with TLC, dump its graph and read it under `view`.

    Raises TlcError if TLC gives no verdict, KeyError if a variable of `system` has no counterpart.
    """
    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as folder:
        dot = Path(folder) / "graph.dot"
        outcome = run(tools, replace(job, dump=dot))
        return _read(dot, system, view), outcome


def _read(dot: Path, system: System, view: View) -> Graph:
    translate = _translation(system)
    states: dict[str, State] = {}
    initial: State | None = None
    for number, text, is_initial in dump.nodes(dot):
        states[number] = view.of(translate(read_state(text)))
        if is_initial:
            initial = states[number]
    if initial is None:
        raise ValueError(f"{dot} has no initial state")
    edges: dict[State, set[Edge]] = {state: set() for state in states.values()}
    for source, action, target in dump.edges(dot):
        edges[states[source]].add((snake(action), states[target]))
    return Graph(view.names, initial, edges)


def _translation(system: System) -> Callable[[Mapping[str, Value]], Mapping[str, Hashable]]:
    """From TLC's variables to the model's, by their names."""
    variables = {v.name: v.names for v in system.layout.variables}
    letter = INSTANCES[system.name]

    def translate(state: Mapping[str, Value]) -> Mapping[str, Hashable]:
        known = dict(_flat(state, letter))
        return {name: _word(_read_off(known, name), words) for name, words in variables.items()}

    return translate


def _flat(state: Mapping[str, Value], letter: str) -> Iterator[tuple[str, Value]]:
    """Each instance's variables by their names in the model."""
    for variable, value in state.items():
        short = snake(variable)
        if isinstance(value, Mapping):
            for key, each in value.items():
                yield f"{letter}{re.sub('[<>, ]', '', str(key))}.{short}", each
        else:
            yield short, value


def _read_off(known: Mapping[str, Value], name: str) -> Value:
    """A variable's value; the model has a flag for each load-back, TLA+ the set of those that claim a node."""
    claim = CLAIM.fullmatch(name)
    if claim is None:
        return known[name]
    claims = known[f"{claim[1]}.claims"]
    return isinstance(claims, frozenset) and f"l{claim[2]}" in claims


def _word(value: Value, words: tuple[str, ...]) -> Hashable:
    if isinstance(value, str):
        return value
    number = int(value) if isinstance(value, int) else show(value)
    return words[number] if words and isinstance(number, int) else number


def snake(name: str) -> str:
    """A name of the TLA+ as the model spells it."""
    plain = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    return RENAMED.get(plain, plain)
