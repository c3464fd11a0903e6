"""`mutate`: every mutant through the checks, the survivors against the argued equivalents."""

import time
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from hicache_fsm.check import shipped_logs
from hicache_fsm.mutate.checks import (
    DRIVEN,
    OURS,
    SYSTEMS,
    Kill,
    Rung,
    by_proof,
    by_replay,
    by_runtime,
    by_search,
    by_validation,
    first,
    graph,
    ladder,
    proofs,
    reads,
    small,
    verdict_of,
)
from hicache_fsm.mutate.driven import Driven, drive
from hicache_fsm.mutate.mutants import Mutant, mutants
from hicache_fsm.spec import Spec, spec_dir

EQUIVALENTS: Final = Path("mutation") / "equivalent-mutants.toml"
"""Where the mutants are argued that no check can or need tell from the spec, inside the spec's directory."""


QUICK: Final = 6_000
"""States up to which a search costs less than driving the runtime."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the checks say of the spec itself."""

    rungs: tuple[Rung, ...]
    driven: Mapping[tuple[str, str], Driven]
    proofs: Mapping[str, Mapping[str, str]]
    logs: Mapping[Path, tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of one mutant: killed, or None; `seconds` is how long the checks ran."""

    name: str
    place: str
    kill: Kill | None
    seconds: float


@dataclass(frozen=True, slots=True)
class MutationReport:
    """All mutants' fates; `argued` maps equivalent mutants to the argument, by name.

    `stale` names arguments for mutants that a check kills, or that do not exist.
    """

    fates: tuple[Fate, ...]
    argued: Mapping[str, str]
    stale: tuple[str, ...]
    seconds: float

    @property
    def survivors(self) -> list[Fate]:
        """Mutants that nothing killed and nobody argued."""
        return [fate for fate in self.fates if fate.kill is None and fate.name not in self.argued]

    @property
    def score(self) -> float:
        """The share killed of those that are not argued to be equivalent, 0 to 1."""
        killed = sum(fate.kill is not None for fate in self.fates)
        counted = killed + len(self.survivors)
        return killed / counted if counted else 1.0

    @property
    def exit_code(self) -> int:
        """0 if none survives and no argument is stale, else 1."""
        return 1 if self.survivors or self.stale else 0

    def by_check(self) -> Counter[str]:
        """How many each check killed."""
        return Counter(fate.kill.check for fate in self.fates if fate.kill)

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "exit": self.exit_code,
            "score": round(self.score, 4),
            "mutants": len(self.fates),
            "killed_by": dict(self.by_check()),
            "survivors": [fate.name for fate in self.survivors],
            "equivalent": dict(self.argued),
            "stale": list(self.stale),
            "seconds": round(self.seconds, 1),
            "fates": [
                {
                    "mutant": fate.name,
                    "check": fate.kill.check if fate.kill else None,
                    "by": fate.kill.by if fate.kill else None,
                    "seconds": round(fate.seconds, 3),
                }
                for fate in self.fates
            ],
        }


def load_equivalents(path: Path | None = None) -> dict[str, str]:
    """The argument for each equivalent mutant, by the mutant's name.

    Raises ValueError for an entry without an argument of one line.
    """
    file = path or spec_dir() / EQUIVALENTS
    found: dict[str, str] = {}
    for place, changes in tomllib.loads(file.read_text(encoding="utf-8")).items():
        for change, why in changes.items():
            if not isinstance(why, str) or not why.strip() or "\n" in why:
                raise ValueError(f'{file.name}: [{place}] "{change}": give the argument in one line')
            found[f"{place}: {change}"] = why
    return found


def baseline(
    spec: Spec, places: Collection[str], jobs: int, tell: Callable[[str], None] = lambda _: None
) -> Baseline:
    """Run on the spec itself every check in which a mutant of one of `places` could show."""
    systems = small()
    searched = [pair for pair in ladder(spec) if any(reads(place, *pair) for place in places)]
    called = [pair for pair in DRIVEN if any(reads(place, pair[0], systems[pair[1]]) for place in places)]
    profiles = [
        name for name in spec.profiles if name in places or (name == OURS and set(places) & SYSTEMS.keys())
    ]
    with ProcessPoolExecutor(jobs) as pool:
        tell("checking the spec itself")
        proved = {profile: pool.submit(proofs, spec, profile, profile) for profile in profiles}
        graphs = [pool.submit(graph, spec, *pair) for pair in searched]
        logs = {log: pool.submit(verdict_of, spec, log) for log in shipped_logs()}
        driven = {pair: pool.submit(drive, spec, pair[0], systems[pair[1]]) for pair in called}
        return Baseline(
            tuple(Rung(*pair, found.result()) for pair, found in zip(searched, graphs, strict=True)),
            {pair: found.result() for pair, found in driven.items()},
            {profile: found.result() for profile, found in proved.items()},
            {log: found.result() for log, found in logs.items()},
        )


def judge(mutant: Mutant, known: Baseline, argued: bool) -> Fate:
    """One mutant through the checks, cheapest first, until one notices."""
    started = time.perf_counter()
    searches = sorted(
        (r for r in known.rungs if reads(mutant.place, r.profile, r.configuration)),
        key=lambda r: r.graph.distinct,
    )
    quick = [partial(by_search, mutant, rung) for rung in searches if rung.graph.distinct < QUICK]
    large = [partial(by_search, mutant, rung) for rung in searches if rung.graph.distinct >= QUICK]
    runtime = partial(by_runtime, mutant, known.driven)
    logs, proved = partial(by_replay, mutant, known.logs), partial(by_proof, mutant, known.proofs)
    # A mutant that is argued to be equivalent is spared the minute that proofs and large searches take.
    rest = [] if argued else [*large, proved]
    kill = first([partial(by_validation, mutant), *quick, runtime, logs, *rest])
    return Fate(mutant.name, mutant.place, kill, time.perf_counter() - started)


def mutate(
    spec: Spec,
    *,
    only: Collection[str] = (),
    jobs: int = 2,
    chosen: Callable[[Mutant], bool] = lambda _: True,
    argued: Mapping[str, str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    told: Callable[[Fate], None] = lambda _: None,
) -> MutationReport:
    """Judge the mutants of the machines and profiles in `only`, or of all, `jobs` at a time.

    A mutant that is argued to be equivalent is held up to the small searches, the runtime and the logs.
    """
    started = time.perf_counter()
    equivalents = load_equivalents() if argued is None else argued
    every = list(mutants(spec))
    wanted = [each for each in every if (not only or each.place in only) and chosen(each)]
    known = baseline(spec, {each.place for each in wanted}, jobs, tell)
    fates: dict[str, Fate] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for future in as_completed(
            [pool.submit(judge, each, known, each.name in equivalents) for each in wanted]
        ):
            fate = future.result()
            fates[fate.name] = fate
            told(fate)
            tell(
                f"{len(fates)} of {len(wanted)} mutants, {sum(f.kill is None for f in fates.values())} alive"
            )
    ordered = tuple(fates[each.name] for each in wanted)
    names = {each.name for each in every}
    return MutationReport(
        ordered,
        {name: why for name, why in equivalents.items() if name in fates},
        _stale(ordered, names, equivalents),
        time.perf_counter() - started,
    )


def _stale(fates: Sequence[Fate], names: Collection[str], argued: Mapping[str, str]) -> tuple[str, ...]:
    killed = {fate.name for fate in fates if fate.kill}
    return tuple(name for name in argued if name not in names or name in killed)
