"""Breadth-first search of every reachable state, a level at a time."""

import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from hicache_fsm.explore.engine import Engine, Target
from hicache_fsm.explore.estimate import exceeds_memory
from hicache_fsm.explore.native import native
from hicache_fsm.explore.portable import Portable
from hicache_fsm.explore.result import Outcome, Result, Trace, Verdict
from hicache_fsm.explore.symmetry import symmetry
from hicache_fsm.explore.trace import traces
from hicache_fsm.model.system import System

Progress = Callable[[int, int, int], None]
"""Called after each level with its depth, the states found on it, and the distinct states so far."""

Choice = Literal["auto", "numpy", "compiled"]

PATIENCE: Final = 250_000
"""Steps that numpy takes in about the time of a compilation: a system with fewer is searched without one."""


class EngineError(Exception):
    """The engine asked for cannot be had on this machine."""


def explore(
    system: System,
    *,
    max_states: int = 20_000_000,
    progress: Progress | None = None,
    until: Collection[str] = (),
    keep_edges: bool = True,
    engine: Choice = "auto",
    memory: int | None = None,
    spill: Path | None = None,
    symmetric: bool = False,
) -> Result:
    """Searches `system`.

    The search is cut, and what it has not seen violated is undetermined, once more than `max_states` states
    are found, or once every invariant in `until` is violated.  Unless `keep_edges`, distinct steps are not
    counted and goals are undetermined.

    Left to itself, a search starts in numpy, and starts over in compiled code once it turns out to be long
    and a C compiler is there.  States that are expected not to fit into `memory` bytes, what is available if
    None, are kept in files of the folder `spill`, at the pace of its disk; without one they are refused.

    If `symmetric`, states that differ in which interchangeable instance is which are searched once, in numpy; a
    system without any is searched whole.

    Raises EngineError if `engine` cannot be had, ModelError if a variable leaves its range, TooLargeError if the
    states are refused, MemoryError if they turn out not to fit, OSError if `spill` cannot be written.
    """
    started = time.perf_counter()
    if symmetric and (found := symmetry(system)) is not None:
        reduced = _Search(system, max_states, progress, frozenset(until), False, started)
        portable = Portable(system, max_states, False, found)
        reduced.run(portable)
        return replace(reduced.conclude(portable), represented=portable.orbits())
    refusal = exceeds_memory(system, max_states, keep_edges, memory)
    if refusal is not None and (spill is None or engine == "numpy"):
        raise refusal
    folder = spill if refusal is not None else None
    search = _Search(system, max_states, progress, frozenset(until), keep_edges, started)
    if engine != "compiled":
        portable = Portable(system, max_states, keep_edges)
        if search.run(portable, PATIENCE if engine == "auto" else None):
            return search.conclude(portable)
    compiled = native(system, max_states, keep_edges, folder) if engine != "numpy" else None
    if compiled is None and refusal is not None:
        raise refusal
    if compiled is None:
        if engine == "compiled":
            raise EngineError("no compiled search: it takes a C compiler (cc, gcc, clang or what CC names)")
        search.run(portable)
        return search.conclude(portable)
    with closing(compiled):
        search.restart()
        search.run(compiled)
        return search.conclude(compiled)


@dataclass(slots=True)
class _Search:
    system: System
    max_states: int
    progress: Progress | None
    until: frozenset[str]
    keep_edges: bool
    started: float
    depth: int = 0
    told: int = 0
    complete: bool = True

    def restart(self) -> None:
        """Begin with another engine; what was told stays told."""
        self.depth = 0

    def run(self, engine: Engine, patience: int | None = None) -> bool:
        """Search to the end; False if it takes more than `patience` steps."""
        while found := engine.advance():
            self.depth += 1
            if self.progress and self.depth > self.told:
                self.told = self.depth
                self.progress(self.depth, found, engine.distinct)
            if engine.cut or (self.until and self.until <= {each.invariant for each in engine.violations()}):
                self.complete = False
                return True
            if patience is not None and engine.generated > patience:
                return False
        self.complete = not engine.cut
        return True

    def conclude(self, engine: Engine) -> Result:
        """The verdicts and counts."""
        system = self.system
        decides = self.complete and self.keep_edges
        found = _first([*engine.violations(), *(engine.stuck() if decides else ())])
        paths = traces(system, engine, [*found.values()])
        unknown = set() if self.keep_edges else {goal.invariant for goal in system.goals}
        verdicts = {
            name: _verdict(name, paths.get(name), self.complete and name not in unknown)
            for name in system.invariants
        }
        return Result(
            system=system.name,
            configuration=system.configuration,
            profile=system.profile,
            distinct=engine.distinct,
            generated=engine.generated,
            edges=engine.edges() if decides else None,
            depth=self.depth,
            seconds=time.perf_counter() - self.started,
            bytes_per_state=engine.bytes / engine.distinct,
            complete=self.complete,
            verdicts=verdicts,
            taken=dict(engine.taken),
            engine=engine.name,
        )


def _first(targets: Collection[Target]) -> dict[str, Target]:
    """The violation to show of each invariant: a goal only if nothing else breaks it."""
    found: dict[str, Target] = {}
    for target in sorted(targets, key=lambda each: (bool(each.about), each.order)):
        found.setdefault(target.invariant, target)
    return found


def _verdict(invariant: str, trace: Trace | None, complete: bool) -> Verdict:
    outcome: Outcome = "HELD" if complete else "UNDETERMINED"
    return Verdict(invariant, outcome) if trace is None else Verdict(invariant, "VIOLATED", trace)
