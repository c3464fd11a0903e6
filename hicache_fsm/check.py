"""The main job: validate the spec, search the bounded systems for each profile, replay the shipped logs."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final, Literal

from hicache_fsm.explore import Explanation, Result, Trace, explain, explore
from hicache_fsm.explore import Verdict as SearchVerdict
from hicache_fsm.model import configurations, system
from hicache_fsm.replay import Verdict, judge_file
from hicache_fsm.spec import Invariant, Profile, Spec

Word = Literal["held", "upstream finding", "violated", "finding gone", "undetermined", "not searched"]
WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class Standing:
    """How one invariant stands under one profile, over all searched systems."""

    invariant: str
    verdict: Word
    why: str = ""
    configuration: str = ""
    trace: Trace | None = None
    explained: Explanation | None = None

    @property
    def passes(self) -> bool:
        """Whether this is as it should be: held, or pinned as an upstream finding that still shows."""
        return self.verdict in ("held", "upstream finding")


@dataclass(frozen=True, slots=True)
class ProfileReport:
    """The searches of one profile and what they say of each invariant."""

    name: str
    searches: tuple[Result, ...]
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything `check` found."""

    spec_line: str
    profiles: tuple[ProfileReport, ...]
    logs: tuple[Verdict, ...]

    @property
    def exit_code(self) -> int:
        """0 holds, 1 violated, 3 undetermined."""
        standings = [s for profile in self.profiles for s in profile.standings]
        if any(s.verdict in ("violated", "finding gone") for s in standings) or not all(
            v.holds for v in self.logs
        ):
            return 1
        return 0 if all(s.passes for s in standings) else 3

    @property
    def conclusion(self) -> str:
        """One line for the end."""
        states = sum(search.distinct for profile in self.profiles for search in profile.searches)
        events = sum(verdict.events for verdict in self.logs)
        seen = f"{states:,} states searched, {events:,} events replayed"
        return {0: f"holds: {seen}", 1: f"VIOLATED: {seen}", 3: f"UNDETERMINED: {seen}"}[self.exit_code]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "exit": self.exit_code,
            "spec": self.spec_line,
            "profiles": [
                {
                    "profile": profile.name,
                    "searches": [_search_json(search) for search in profile.searches],
                    "invariants": {s.invariant: _standing_json(s) for s in profile.standings},
                }
                for profile in self.profiles
            ],
            "logs": [verdict.as_json() for verdict in self.logs],
        }


def run_check(
    spec: Spec, profiles: Sequence[str], *, max_states: int, tell: Callable[[str], None] = lambda _: None
) -> Report:
    """Search every configuration for every profile, two at a time, then replay the shipped logs.

    `max_states` bounds each search; one that reaches it is undetermined. `tell` gets a word of progress.
    """
    jobs = [(profile, name) for profile in profiles for name in configurations()]
    results: dict[tuple[str, str], Result] = {}
    with ProcessPoolExecutor(WORKERS) as pool:
        futures = {pool.submit(_search, spec, *job, max_states): job for job in jobs}
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            tell(f"{len(results)} of {len(jobs)} searches done")
    reports = []
    for name in profiles:
        searches = tuple(results[name, configuration] for configuration in configurations())
        found = (standing(spec.profiles[name], i, searches) for i in spec.invariants.values())
        standings = tuple(_explained(spec, name, each) for each in found)
        reports.append(ProfileReport(name, searches, standings))
    tell("replaying the shipped logs")
    logs = tuple(judge_file(spec, path) for path in shipped_logs())
    return Report(_spec_line(spec), tuple(reports), logs)


def standing(profile: Profile, invariant: Invariant, searches: Sequence[Result]) -> Standing:
    """Compare what the searches say of an invariant with what the profile pins as upstream's."""
    verdicts = [(s, s.verdicts[invariant.id]) for s in searches if invariant.id in s.verdicts]
    finding = next(
        (f for f in profile.findings if f.invariant == invariant.id and f.shown_by == "search"), None
    )
    for search, verdict in verdicts:
        if verdict.outcome == "VIOLATED":
            where = f"{search.configuration}, {_many(len(verdict.trace or ()), 'step')}"
            if finding is None:
                why = verdict.trace.about if verdict.trace else ""
                return Standing(
                    invariant.id, "violated", f"{why} ({where})", search.configuration, verdict.trace
                )
            reports = f" {', '.join(finding.upstream)}" if finding.upstream else ""
            why = f"{finding.why} ({where}{';' + reports if reports else ''})"
            return Standing(invariant.id, "upstream finding", why, search.configuration, verdict.trace)
    if any(verdict.outcome == "UNDETERMINED" for _, verdict in verdicts):
        return Standing(invariant.id, "undetermined", "a bound was hit: raise --max-states")
    if not verdicts:
        return Standing(invariant.id, "not searched", "no configuration checks it")
    if finding is not None:
        return Standing(
            invariant.id, "finding gone", "pinned as an upstream finding, but no search shows it any more"
        )
    states = sum(search.distinct for search, _ in verdicts)
    return Standing(invariant.id, "held", f"in {states:,} states of {_many(len(verdicts), 'configuration')}")


def _explained(spec: Spec, profile: str, one: Standing) -> Standing:
    """With what there is to know of a violation that nobody pinned."""
    if one.verdict != "violated" or one.trace is None:
        return one
    built = system(spec, profile, one.configuration)
    return replace(one, explained=explain(spec, built, SearchVerdict(one.invariant, "VIOLATED", one.trace)))


def shipped_logs() -> list[Path]:
    """The event logs of real SGLang runs that the package ships, one for each version."""
    folder = files("hicache_fsm") / "logs"
    with as_file(folder) as path:
        return sorted(path.glob("*.jsonl.gz"))


def _search(spec: Spec, profile: str, configuration: str, max_states: int) -> Result:
    return explore(system(spec, profile, configuration), max_states=max_states)


def _spec_line(spec: Spec) -> str:
    states = sum(len(m.states) for m in spec.machines.values())
    rows = sum(len(m.transitions) for m in spec.machines.values())
    return (
        f"spec is valid: {len(spec.machines)} machines, {states} states, {rows} transitions, "
        f"{len(spec.invariants)} invariants, {len(spec.profiles)} profiles"
    )


def _search_json(search: Result) -> dict[str, Any]:
    names = ("system", "configuration", "distinct", "generated", "depth", "seconds", "complete")
    return {name: getattr(search, name) for name in names}


def _standing_json(one: Standing) -> dict[str, Any]:
    trace = [list(row) for row in one.trace.rows()] if one.trace else None
    found = {"verdict": one.verdict, "why": one.why, "configuration": one.configuration, "trace": trace}
    return found if one.explained is None else {**found, "explained": one.explained.as_json()}


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
