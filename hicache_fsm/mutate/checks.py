"""What a mutant is held up to, cheapest first: the search's verdicts and graphs, the proofs, the real logs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from hicache_fsm.explore import explore
from hicache_fsm.model import load_configurations, system
from hicache_fsm.model.configurations import Configuration
from hicache_fsm.model.layout import ModelError
from hicache_fsm.mutate.driven import Driven, drive
from hicache_fsm.mutate.mutants import Mutant
from hicache_fsm.prove.run import PROVABLE, prove
from hicache_fsm.replay import judge_file
from hicache_fsm.spec import Spec, spec_dir
from hicache_fsm.spec.validate import validate_machine

Check = Literal["validation", "search", "conformance", "proof", "replay"]

SYSTEMS: Final[Mapping[str, frozenset[str]]] = {
    "prefetch": frozenset({"admission", "admission-disabled", "ranks"}),
    "operation": frozenset({"admission", "admission-disabled"}),
    "pin": frozenset({"admission", "admission-disabled"}),
    "node": frozenset({"node"}),
    "belief": frozenset({"belief"}),
}
"""The systems that read a machine's table; those of a profile's mutants are all."""

OURS: Final = "recommended"
"""The profile under which everything must hold."""

DRIVEN: Final = (
    (OURS, "admission.one"),
    (OURS, "belief.two"),
    ("seed", "belief.two"),
    (OURS, "node.one"),
)
"""The profiles and systems of mutation/search.toml in which the runtime is driven, each in a second or two."""

GROWTH: Final = 3
"""A search is cut once the mutant has this many times the states of the spec: the graphs differ anyway."""


@dataclass(frozen=True, slots=True)
class Graph:
    """What the search, TLC and the runtime pin of a system: its graph, and which invariants fail.

    `moves` counts the steps that took each row that changes something, by (machine, row number): graphs of one
    size may differ still.
    """

    distinct: int
    depth: int
    edges: int | None
    violated: frozenset[str]
    moves: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Rung:
    """One search of the ladder: a bounded system under a profile, and what it finds in the spec itself."""

    profile: str
    configuration: Configuration
    graph: Graph

    @property
    def name(self) -> str:
        """The configuration and the profile."""
        return f"{self.configuration.name}, {self.profile}"


@dataclass(frozen=True, slots=True)
class Kill:
    """Which check told the mutant from the spec, and by what."""

    check: Check
    by: str


def small() -> dict[str, Configuration]:
    """The systems for mutants, by name."""
    return load_configurations(spec_dir() / "mutation" / "search.toml")


def ladder(spec: Spec) -> list[tuple[str, Configuration]]:
    """The profiles and systems to search: the small ones under every profile, those of `check` under ours."""
    few = [(profile, each) for each in small().values() for profile in spec.profiles]
    return [*few, *((OURS, each) for each in load_configurations().values() if each.default)]


def graph(spec: Spec, profile: str, configuration: Configuration, most: int = 1_000_000) -> Graph:
    """Search one system.  Raises ModelError if a step leaves the ranges of its variables."""
    # The compiled engine would compile, and keep, a library for each mutant.
    found = explore(system(spec, profile, configuration), max_states=most, engine="numpy")
    staying = _staying(spec)
    moves = {row: count for row, count in found.taken.items() if row not in staying}
    return Graph(found.distinct, found.depth, found.edges, frozenset(found.violated), moves)


def reads(place: str, profile: str, configuration: Configuration) -> bool:
    """Whether a mutant of the machine or profile called `place` can show in the system under the profile."""
    machine = SYSTEMS.get(place)
    return place == profile if machine is None else configuration.system in machine


def by_validation(mutant: Mutant) -> Kill | None:
    """The machine's table alone: witnesses, which name rows, would notice every dropped one."""
    machine = mutant.spec.machines.get(mutant.place)
    problems = validate_machine(machine) if machine else []
    return Kill("validation", problems[0].reason) if problems else None


def by_search(mutant: Mutant, rung: Rung) -> Kill | None:
    """Another verdict, a model that breaks, or a graph of another size."""
    try:
        found = graph(mutant.spec, rung.profile, rung.configuration, GROWTH * rung.graph.distinct)
    except ModelError as error:
        return Kill("search", f"{rung.name}: {error}")
    changed = found.violated - rung.graph.violated
    if changed:
        return Kill("search", f"{rung.name}: {', '.join(sorted(changed))}")
    size, known = (found.distinct, found.depth, found.edges), rung.graph
    if size != (known.distinct, known.depth, known.edges):
        return Kill("conformance", f"{rung.name}: states, depth, edges {size}")
    staying = _staying(mutant.spec)
    moving = [key for key in known.moves if key not in staying]
    moved = next((key for key in moving if found.moves.get(key, 0) != known.moves[key]), None)
    if moved is not None:
        return Kill("conformance", f"{rung.name}: other steps by row {moved[1]} of {moved[0]}")
    gone = rung.graph.violated - found.violated
    return Kill("search", f"{rung.name}: no longer {', '.join(sorted(gone))}") if gone else None


def _staying(spec: Spec) -> frozenset[tuple[str, int]]:
    """The rows that change nothing: no edge of a graph tells whether one was taken."""
    return frozenset(
        (machine.name, row.row)
        for machine in spec.machines.values()
        for row in machine.transitions
        if row.dest == row.source and not row.effects
    )


def by_runtime(mutant: Mutant, known: Mapping[tuple[str, str], Driven]) -> Kill | None:
    """The runtime, driven by the mutant's tables, answers a call or goes somewhere else.

    `known` has what the spec's own tables do, by profile and system.
    """
    systems = small()
    for (profile, name), driven in known.items():
        if not reads(mutant.place, profile, systems[name]):
            continue
        try:
            found = drive(mutant.spec, profile, systems[name])
        except Exception as error:  # whatever a wrong table makes the runtime do is a difference
            return Kill("conformance", f"{name}, runtime: {type(error).__name__}")
        if found != driven:
            return Kill("conformance", f"{name}: the runtime answers differently")
    return None


def proofs(spec: Spec, profile: str, place: str) -> dict[str, str]:
    """The verdict of each provable invariant that a change of the machine or profile `place` may touch."""
    touched = [name for name in PROVABLE if place in spec.profiles or place in spec.invariants[name].machines]
    return {proof.invariant: proof.verdict for proof in prove(spec, profile, touched).proofs}


def by_proof(mutant: Mutant, known: Mapping[str, Mapping[str, str]]) -> Kill | None:
    """A proof that fails, or a finding that is gone; `known` has the spec's verdicts by profile."""
    profile = mutant.place if mutant.place in known else OURS
    found = proofs(mutant.spec, profile, mutant.place)
    changed = [name for name, verdict in found.items() if verdict != known[profile][name]]
    return Kill("proof", f"{changed[0]}, {profile}: {found[changed[0]]}") if changed else None


def verdict_of(spec: Spec, log: Path) -> tuple[object, ...]:
    """What replay says of a log: whether it holds, what it counted, where it went."""
    found = judge_file(spec, log)
    return found.holds, dict(found.findings), dict(found.states), dict(found.edges), len(found.unexpected)


def by_replay(mutant: Mutant, known: Mapping[Path, tuple[object, ...]]) -> Kill | None:
    """A real log that is judged differently; `known` has the spec's verdicts by log."""
    for log, verdict in known.items():
        if verdict_of(mutant.spec, log) != verdict:
            return Kill("replay", log.name)
    return None


def first(checks: Sequence[Callable[[], Kill | None]]) -> Kill | None:
    """The first check that notices."""
    return next((kill for check in checks if (kill := check()) is not None), None)
