"""A counterexample explained: which steps matter, what the invariant says, and where the real code does it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hicache_fsm.explore.result import Trace, Verdict
from hicache_fsm.explore.slice import Matter, matters
from hicache_fsm.model.system import System
from hicache_fsm.spec.types import Finding, Invariant, Spec

NEWEST = "0.5.23"
"""Whose code stands for a profile of no SGLang version."""


@dataclass(frozen=True, slots=True)
class Place:
    """A state that the counterexample goes through, and the fields that stand for it in SGLang."""

    state: str
    about: str
    code: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """A violation with what there is to know of it; `matters` goes with the trace's steps.

    `version` is the SGLang release whose code `places` names, `finding` the upstream defect that the profile pins.
    """

    invariant: Invariant
    profile: str
    configuration: str
    trace: Trace
    matters: tuple[Matter, ...]
    finding: Finding | None
    version: str
    places: tuple[Place, ...]

    @property
    def rows(self) -> Iterator[tuple[str, str, str, str]]:
        """Each step's number, action, changes, and what these are for."""
        for (number, action, changes), matter in zip(self.trace.rows(), self.matters, strict=True):
            yield number, action, changes, _purpose(matter, len(self.trace))

    def as_json(self) -> dict[str, Any]:
        """The explanation as plain values."""
        return {
            "invariant": self.invariant.id,
            "sentence": self.invariant.sentence,
            "profile": self.profile,
            "configuration": self.configuration,
            "about": self.trace.about,
            "finding": self.finding.why if self.finding else None,
            "upstream": list(self.finding.upstream) if self.finding else [],
            "steps": [
                {
                    "action": step.action,
                    "changes": {name: list(pair) for name, pair in step.changed.items()},
                    "matters": matter.counts,
                    "fails": matter.fails,
                    "sets": {name: list(numbers) for name, numbers in matter.sets.items()},
                }
                for step, matter in zip(self.trace.steps, self.matters, strict=True)
            ],
            "sglang": self.version,
            "code": {place.state: list(place.code) for place in self.places},
        }


def explain(spec: Spec, system: System, verdict: Verdict) -> Explanation:
    """Explain a violation that a search of `system` found.  Raises ValueError if there is none."""
    if verdict.trace is None:
        raise ValueError(f"{system.configuration}: {verdict.invariant} has no counterexample")
    profile = spec.profiles[system.profile]
    pinned = (each for each in profile.findings if each.invariant == verdict.invariant)
    version = profile.sglang[-1] if profile.sglang else NEWEST
    return Explanation(
        spec.invariants[verdict.invariant],
        profile.name,
        system.configuration,
        verdict.trace,
        matters(system, verdict.invariant, verdict.trace),
        next(pinned, None),
        version,
        tuple(_places(spec, version, verdict.trace)),
    )


def _places(spec: Spec, version: str, trace: Trace) -> Iterator[Place]:
    """The states of the rows that the steps take, each once, as the trace comes by them."""
    visited: dict[tuple[str, str], None] = {}
    for step in trace.steps:
        for row in step.rows:
            taken = spec.machines[row.machine].transitions[row.number]
            visited |= dict.fromkeys(((row.machine, taken.source), (row.machine, taken.dest)))
    for machine, name in visited:
        state = spec.machines[machine].states[name]
        code = (state.upstream or {}).get(version, ())
        if code:
            yield Place(f"{machine}.{name}", state.about, code)


def _purpose(matter: Matter, length: int) -> str:
    if not matter.counts:
        return "beside the point"
    readers: dict[str, list[str]] = {}
    for name, numbers in matter.sets.items():
        for number in numbers:
            reader = "what fails" if number > length else f"step {number}"
            readers.setdefault(reader, []).append(name)
    purposes = [f"{', '.join(names)} for {reader}" for reader, names in readers.items()]
    return "; ".join([*purposes, "this step fails"] if matter.fails else purposes)
