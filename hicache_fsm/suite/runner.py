"""Drives a target along a scenario, and says at which step it went another way."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from hicache_fsm.suite.oracle import Finding, Oracle
from hicache_fsm.suite.predicate import UntoldError
from hicache_fsm.suite.protocol import (
    Answer,
    CacheUnderTest,
    Event,
    Observed,
    Reply,
    RequestView,
    Target,
    UnsupportedError,
)
from hicache_fsm.suite.scenario import Scenario, Step

Outcome = Literal["pass", "fail", "inexpressible"]

HAPPENED: Final = frozenset({Answer.DONE, Answer.SEEN})
DID_NOT: Final = frozenset({Answer.ABSENT, Answer.REFUSED})
TICK: Final = Event("tick")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a scenario went: `what` is the invariant broken, or `expect`, `refused`, `absent`, `happened`, `progress`.

    `step` counts the scenario's lines that are not comments, from 1; 0 is the world itself.
    """

    outcome: Outcome
    step: int = 0
    what: str = ""
    why: str = ""

    def __str__(self) -> str:
        match self.outcome:
            case "pass":
                return "pass"
            case "fail":
                return f"fail at step {self.step}: {self.what}"
        return f"inexpressible at step {self.step}" if self.step else "inexpressible"


@dataclass(frozen=True, slots=True)
class Taken:
    """One step: what the target said, what it changed of the state, and what the oracle found."""

    number: int
    text: str
    reply: Reply | None
    changed: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """A scenario on a target: every step up to the one that decided."""

    scenario: Scenario
    target: str
    verdict: Verdict
    steps: tuple[Taken, ...]

    def as_json(self) -> dict[str, Any]:
        """The run as plain values."""
        return {
            "scenario": self.scenario.id,
            "upstream": list(self.scenario.upstream),
            "target": self.target,
            "outcome": self.verdict.outcome,
            "verdict": str(self.verdict),
            "step": self.verdict.step,
            "what": self.verdict.what,
            "why": self.verdict.why,
            "steps": [
                {
                    "step": taken.number,
                    "text": taken.text,
                    "answer": str(taken.reply.answer) if taken.reply else None,
                    "why": taken.reply.why if taken.reply else "",
                    "changed": list(taken.changed),
                    "findings": [str(each) for each in taken.findings],
                    "note": taken.note,
                }
                for taken in self.steps
            ],
        }


def run(target: Target, scenario: Scenario) -> ScenarioRun:
    """Drive a fresh cache of the target along the scenario, up to the first step that goes another way.

    What a target raises beyond UnsupportedError is passed on: it is a crash, not a verdict.
    """
    try:
        cache = target.build(scenario.world)
    except UnsupportedError as error:
        return ScenarioRun(scenario, target.name, Verdict("inexpressible", why=str(error)), ())
    try:
        return _Run(target.name, scenario, cache).go()
    finally:
        cache.close()


class _Run:
    def __init__(self, target: str, scenario: Scenario, cache: CacheUnderTest) -> None:
        self._target, self._scenario, self._cache = target, scenario, cache
        self._now = cache.observe()
        self._oracle = Oracle(scenario.world, self._now)
        self._broken: dict[str, Finding] = {}
        self._steps: list[Taken] = []

    def go(self) -> ScenarioRun:
        """Take the steps in order."""
        verdict = Verdict("pass")
        for number, step in enumerate(self._scenario.steps, 1):
            verdict = self._take(number, step)
            if verdict.outcome != "pass":
                break
        return ScenarioRun(self._scenario, self._target, verdict, tuple(self._steps))

    def _take(self, number: int, step: Step) -> Verdict:
        if step.condition is not None:
            return self._expect(number, step)
        if step.kind == "holds":
            broken = self._broken.get(step.invariant)
            self._note(number, step, "broken before" if broken else "")
            return Verdict("fail", number, step.invariant, broken.told) if broken else Verdict("pass")
        return self._event(number, step)

    def _expect(self, number: int, step: Step) -> Verdict:
        assert step.condition is not None
        world = self._scenario.world
        try:
            holds = step.condition.holds(self._now, world)
            reads = step.condition.reads(self._now, world)
        except UntoldError as untold:
            self._note(number, step, str(untold))
            return Verdict("pass") if step.optional else Verdict("inexpressible", number, why=str(untold))
        self._note(number, step, "" if holds else f"but {reads}")
        return (
            Verdict("pass") if holds else Verdict("fail", number, "expect", f"{step.condition.text}: {reads}")
        )

    def _event(self, number: int, step: Step) -> Verdict:
        assert step.event is not None
        for passed in range(step.within + 1):
            reply, findings = self._drive(number, step.text, step.event)
            verdict = self._judge(number, step, reply, findings)
            if (
                verdict.outcome != "fail"
                or passed == step.within
                or verdict.what not in ("absent", "refused")
            ):
                break
            _, findings = self._drive(number, "tick", TICK)
            if findings:
                return Verdict("fail", number, findings[0].invariant, findings[0].told)
        if step.within and verdict.outcome == "fail" and verdict.what in ("absent", "refused"):
            return Verdict("fail", number, "progress", f"not within {step.within} passes: {verdict.why}")
        return verdict

    def _judge(self, number: int, step: Step, reply: Reply, findings: list[Finding]) -> Verdict:
        if findings:
            return Verdict("fail", number, findings[0].invariant, findings[0].told)
        if reply.answer is Answer.INEXPRESSIBLE:
            return Verdict("pass") if step.optional else Verdict("inexpressible", number, why=reply.why)
        if step.optional or (reply.answer in (DID_NOT if step.refused else HAPPENED)):
            return Verdict("pass")
        return Verdict("fail", number, "happened" if step.refused else str(reply.answer), reply.why)

    def _drive(self, number: int, text: str, event: Event) -> tuple[Reply, list[Finding]]:
        reply = self._cache.drive(event)
        before, self._now = self._now, self._cache.observe()
        judges = self._scenario.judges
        found = self._oracle.see(event, reply, self._now)
        for each in found:
            self._broken.setdefault(each.invariant, each)
        judged = [each for each in found if judges is None or each.invariant in judges]
        self._steps.append(Taken(number, text, reply, changes(before, self._now), tuple(judged)))
        return reply, judged

    def _note(self, number: int, step: Step, note: str) -> None:
        self._steps.append(Taken(number, step.text, None, (), (), note))


def changes(before: Observed, after: Observed) -> tuple[str, ...]:
    """What is other in `after`, as `r: queued -> probing` or `pinned by all 0 -> 2`."""
    found = []
    for rid, view in after.requests.items():
        was = before.requests.get(rid, RequestView())
        changed = [
            f"{each.name} {getattr(was, each.name)} -> {getattr(view, each.name)}"
            for each in fields(RequestView)
            if each.name not in ("state", "loaded", "base")
            and getattr(was, each.name) != getattr(view, each.name)
        ]
        if was.state != view.state:
            changed.insert(0, f"{was.state} -> {view.state}")
        if changed:
            found.append(f"{rid}: {', '.join(changed)}")
    for name in ("now", "pinned", "occupied", "orphans"):
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            told = {"now": "pass", "pinned": "pinned by all"}.get(name, name)
            found.append(f"{told} {one} -> {other}")
    for name in ("believed", "stored"):
        found += _sets(name, getattr(before, name), getattr(after, name))
    found += [f"asked for {rid}: {count}" for rid, count in _more(before.asked, after.asked).items()]
    return tuple(found)


def _sets(name: str, before: frozenset[str], after: frozenset[str]) -> list[str]:
    parts = [f"+{page}" for page in sorted(after - before)] + [f"-{page}" for page in sorted(before - after)]
    return [f"{name} {' '.join(parts)}"] if parts else []


def _more(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {rid: count for rid, count in after.items() if count != before.get(rid, 0)}
