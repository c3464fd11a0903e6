"""One profile under asked-for bounds: searched, counted again by other engines, explained where it fails."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hicache_fsm.bounded.engines import Count, counted
from hicache_fsm.bounded.forecast import Forecast, forecast
from hicache_fsm.check import Standing, standing
from hicache_fsm.explore import Result, TooLargeError, explore
from hicache_fsm.explore.estimate import GIB, available_memory, bytes_per_state
from hicache_fsm.explore.explain import Explanation, explain
from hicache_fsm.explore.fair import LiveVerdict, decide, require_scipy
from hicache_fsm.explore.symmetry import symmetry
from hicache_fsm.model import Configuration, load_configurations, system
from hicache_fsm.model.fairness import fairness, liveness
from hicache_fsm.spec import Spec

Tell = Callable[[str], None]

NONE: Final = "no two instances are interchangeable here"

MOST_STATES: Final = 1 << 31
"""As many as the compiled search can number."""

ALL: Final = 1 << 62
"""Memory that no search exceeds."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a search may use, and what else it is to find out.

    `engines` count the states again ("tlc", "spin"), `fair` decides what happens eventually, too, `symmetric`
    searches one of the states that differ in which interchangeable instance is which.  States that are expected
    not to fit into `memory` bytes, what is available if None, go to files in `spill`, or are refused.
    """

    engines: tuple[str, ...] = ()
    fair: bool = False
    symmetric: bool = False
    max_states: int = MOST_STATES
    memory: int | None = None
    spill: Path | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """One configuration under one profile.

    `refused` says why there is no search, `live` what happens eventually, `interchangeable` which instances are,
    `pinned` the invariants that the profile is known to break.
    """

    profile: str
    configuration: Configuration
    forecast: Forecast
    refused: str = ""
    result: Result | None = None
    standings: tuple[Standing, ...] = ()
    explained: tuple[Explanation, ...] = ()
    counts: tuple[Count, ...] = ()
    live: tuple[LiveVerdict, ...] = ()
    live_refused: str = ""
    interchangeable: str = ""
    pinned: frozenset[str] = frozenset()

    @property
    def broken(self) -> tuple[LiveVerdict, ...]:
        """What does not happen eventually, and takes no invariant that the profile is known to break."""
        return tuple(
            each
            for each in self.live
            if not each.holds and not self.pinned & {each.liveness.invariant, *each.liveness.takes}
        )

    @property
    def exit_code(self) -> int:
        """0 holds, 1 violated or the engines differ, 3 undetermined: refused, cut, or another engine gave no count."""
        differs = any(not count.agrees and count.distinct is not None for count in self.counts)
        violated = any(each.verdict == "violated" for each in self.standings)
        if differs or violated or self.broken:
            return 1
        told = all(count.agrees for count in self.counts) and not self.live_refused
        return 0 if self.result is not None and told and all(s.passes for s in self.standings) else 3

    def as_json(self) -> dict[str, Any]:
        """The search as plain values."""
        return {
            "profile": self.profile,
            "system": self.configuration.system,
            "bounds": dict(self.configuration.bounds),
            "constants": dict(self.configuration.constants),
            "expected": {"states": self.forecast.states, "how": self.forecast.how},
            "refused": self.refused,
            "found": None if self.result is None else _result_json(self.result),
            "invariants": {s.invariant: {"verdict": s.verdict, "why": s.why} for s in self.standings},
            "explained": [each.as_json() for each in self.explained],
            "engines": [count.as_json() for count in self.counts],
            "live": [_live_json(each) for each in self.live],
            "live_refused": self.live_refused,
            "interchangeable": self.interchangeable,
        }


@dataclass(frozen=True, slots=True)
class BoundedReport:
    """Every configuration that was asked for, under every profile."""

    searches: tuple[Searched, ...]

    @property
    def exit_code(self) -> int:
        """The worst of the searches': violated before undetermined before holds."""
        codes = {search.exit_code for search in self.searches}
        return 1 if 1 in codes else 3 if 3 in codes else 0

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {"exit": self.exit_code, "searches": [search.as_json() for search in self.searches]}


DEFAULT: Final = Means()


def search_within(
    spec: Spec,
    profile: str,
    configuration: Configuration,
    means: Means = DEFAULT,
    *,
    told: Callable[[Forecast], None] = lambda _: None,
    tell: Tell = lambda _: None,
) -> Searched:
    """Search one configuration; `told` gets what to expect before it starts, `tell` a word of progress.

    Raises ModelError for bounds that make no system, ScipyMissingError if `means` are fair and scipy is missing.
    """
    if means.fair:
        require_scipy()
    built = system(spec, profile, configuration)
    expected = forecast(spec, profile, configuration)
    told(expected)
    findings = spec.profiles[profile].findings
    pinned = frozenset(each.invariant for each in findings if each.shown_by == "search")
    bare = Searched(profile, configuration, expected, pinned=pinned)
    budget = available_memory() if means.memory is None else means.memory
    fits = budget is None or expected.bytes <= budget
    if means.symmetric:
        found = symmetry(built)
        bare = replace(bare, interchangeable=str(found) if found else NONE)
        fits = fits or found is not None
    if not fits and means.spill is None:
        return replace(bare, refused=_refusal(expected, budget or 0))
    most = means.max_states
    if fits and budget is not None:
        # The forecast may be wrong: rather cut than killed.
        most = min(most, int(budget / bytes_per_state(built)))

    def progress(depth: int, found: int, distinct: int) -> None:
        tell(f"{configuration.name}: depth {depth}, {found:,} states on it, {distinct:,} in all")

    try:
        # It is decided here, by the better forecast, whether states are kept in memory.
        result = explore(
            built,
            max_states=most,
            memory=ALL if fits else 0,
            spill=means.spill,
            progress=progress,
            symmetric=means.symmetric,
        )
    except (TooLargeError, MemoryError) as error:
        return replace(bare, refused=str(error))
    standings = tuple(
        _within(standing(spec.profiles[profile], invariant, [result]), result)
        for invariant in spec.invariants.values()
        if invariant.id in result.verdicts
    )
    counts = tuple(
        counted(engine, spec, profile, configuration, result, memory=means.memory or 0, tell=tell)
        for engine in means.engines
        if engine != "own" and result.complete
    )
    explained = tuple(
        explain(spec, built, verdict) for verdict in result.verdicts.values() if verdict.trace is not None
    )
    searched = replace(bare, result=result, standings=standings, explained=explained, counts=counts)
    if not means.fair:
        return searched
    try:
        return replace(searched, live=tuple(decide(built, liveness(spec, built), fairness(built), tell=tell)))
    except TooLargeError as error:
        return replace(searched, live_refused=str(error))


def shown_finding(
    spec: Spec, profile: str, invariant: str, *, max_states: int = 20_000_000, tell: Tell = lambda _: None
) -> Explanation | None:
    """A counterexample to an invariant under a profile, from the first default configuration that has one."""
    systems = spec.invariants[invariant].systems
    for configuration in load_configurations().values():
        if configuration.default and configuration.system in systems:
            tell(configuration.name)
            built = system(spec, profile, configuration)
            result = explore(built, max_states=max_states, until=[invariant])
            verdict = result.verdicts.get(invariant)
            if verdict is not None and verdict.trace is not None:
                return explain(spec, built, verdict)
    return None


def _refusal(expected: Forecast, budget: int) -> str:
    return (
        f"{expected.bytes / GIB:.2f} GiB are needed, {budget / GIB:.2f} may be taken: lower the bounds, allow more "
        "(--max-memory), name a folder to keep states in (--spill), or ask `hicache-fsm prove`, which needs no bounds"
    )


def _within(found: Standing, result: Result) -> Standing:
    """What it holds in; a pinned finding need not show in every bounds."""
    match found.verdict:
        case "held":
            return replace(found, why=f"in {result.distinct:,} states")
        case "finding gone":
            why = f"in {result.distinct:,} states; upstream's finding does not show within these bounds"
            return replace(found, verdict="held", why=why)
    return found


def _result_json(result: Result) -> dict[str, Any]:
    names = (
        "distinct",
        "stood_for",
        "generated",
        "edges",
        "depth",
        "seconds",
        "bytes_per_state",
        "complete",
        "engine",
    )
    return {name: getattr(result, name) for name in names}


def _live_json(verdict: LiveVerdict) -> dict[str, Any]:
    run = [list(row) for row in verdict.lasso.trace().rows()] if verdict.lasso else None
    return {
        "property": verdict.liveness.name,
        "about": verdict.liveness.about,
        "holds": verdict.holds,
        "run": run,
    }
