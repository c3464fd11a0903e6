"""`prove`: each invariant for every value of the quantities, with everything that its proof leans on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from hicache_fsm.prove.beliefs import beliefs_for_all
from hicache_fsm.prove.conjuncts import Theory
from hicache_fsm.prove.induct import Induction, Obligation
from hicache_fsm.prove.lemmas import admission_theory, node_theory
from hicache_fsm.prove.parametric import Parametric, admission_for_all, any_scope, nodes_for_all
from hicache_fsm.prove.ranks import ranks_for_all
from hicache_fsm.spec.types import Profile, Spec

Word = Literal["proved", "upstream finding", "not proved", "finding gone", "undetermined"]

PROVABLE: Final = (
    "marker-owned", "marker-once", "attempts-bounded", "paced", "one-in-flight", "disabled-inert", "pin-cap",
    "headroom", "pin-owned", "no-residue", "conservation", "load-exclusive", "tombstone-once", "belief-evidence",
    "asked-armed", "progress", "heals", "lockstep",
)  # fmt: skip
"""The invariants that have a proof."""

TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Case:
    """A system with open quantities and what is to be proved of it."""

    system: Parametric
    theory: Theory


@dataclass(frozen=True, slots=True)
class Proof:
    """How one invariant stands: proved if every obligation of its foundation is, in every system.

    `broken` is the first obligation that failed or was not decided, `foundation` what the proof leans on.
    """

    invariant: str
    verdict: Word
    why: str
    foundation: tuple[str, ...]
    queries: int
    seconds: float
    system: str = ""
    broken: Obligation | None = None

    @property
    def passes(self) -> bool:
        """Whether this is as it should be: proved, or pinned as an upstream finding that still shows."""
        return self.verdict in ("proved", "upstream finding")


@dataclass(frozen=True, slots=True)
class ProofReport:
    """Everything that one run of `prove` found under one profile."""

    profile: str
    systems: tuple[str, ...]
    proofs: tuple[Proof, ...]
    seconds: float

    @property
    def exit_code(self) -> int:
        """0 all hold, 1 something is not proved, 3 something is undetermined."""
        if any(proof.verdict in ("not proved", "finding gone") for proof in self.proofs):
            return 1
        return 0 if all(proof.passes for proof in self.proofs) else 3

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "exit": self.exit_code,
            "profile": self.profile,
            "systems": list(self.systems),
            "seconds": round(self.seconds, 3),
            "invariants": {proof.invariant: _proof_json(proof) for proof in self.proofs},
        }


def cases(spec: Spec, profile: str, requests: int = 2) -> list[Case]:
    """The systems that `prove` reasons about: 1 to `requests` requests, retries off, nodes, beliefs, ranks."""
    rules = spec.profiles[profile].constants
    paced = replace(rules, interval=max(rules.interval, 1), dense=False)
    found: list[Case] = []
    for count in range(1, requests + 1):
        scope = any_scope(paced, count)
        system = admission_for_all(spec, scope, f"{count} request{'s' if count > 1 else ''}")
        found.append(Case(system, admission_theory(spec, system, scope)))
    for off, name in (
        (replace(rules, interval=0, dense=False), "interval 0"),
        (replace(paced, dense=True), "dense"),
    ):
        scope = any_scope(off, 1)
        system = admission_for_all(spec, scope, f"1 request, {name}")
        found.append(Case(system, admission_theory(spec, system, scope)))
    nodes = nodes_for_all(spec, profile)
    others = (beliefs_for_all(spec, profile), ranks_for_all(spec, profile))
    return [*found, Case(nodes, node_theory(nodes)), *(Case(*each) for each in others)]


def prove(
    spec: Spec,
    profile: str,
    invariants: Sequence[str] = PROVABLE,
    *,
    requests: int = 2,
    timeout_s: float = TIMEOUT_S,
    tell: Callable[[str], None] = lambda _: None,
) -> ProofReport:
    """Prove invariants under one profile.  A question that takes longer than `timeout_s` is undetermined."""
    started = time.perf_counter()
    chosen = cases(spec, profile, requests)
    done = [
        (case, obligations)
        for case in chosen
        if (obligations := _discharge(case, invariants, timeout_s, tell))
    ]
    proofs = tuple(_proof(spec.profiles[profile], invariant, done) for invariant in invariants)
    systems = tuple(case.system.name for case, _ in done)
    return ProofReport(profile, systems, proofs, time.perf_counter() - started)


def _discharge(
    case: Case, invariants: Sequence[str], timeout_s: float, tell: Callable[[str], None]
) -> dict[str, Obligation]:
    """The obligations that the invariants lean on in this system, by name."""
    needed = [name for invariant in invariants for name in case.theory.foundation(invariant)]
    if not needed:
        return {}
    induction = Induction(case.system, case.theory, timeout_s)
    return {each.name: each for each in induction.prove(dict.fromkeys(needed), tell)}


def _proof(profile: Profile, invariant: str, done: Sequence[tuple[Case, dict[str, Obligation]]]) -> Proof:
    parts = [
        _Part(case.system.name, obligations[name], name in case.theory.obligations(invariant))
        for case, obligations in done
        for name in case.theory.foundation(invariant)
    ]
    lemmas = tuple(dict.fromkeys(part.obligation.name for part in parts if not part.own))
    # The invariant's own failure says more than that of what it leans on, and a failure more than no answer.
    bad = sorted((part for part in parts if part.obligation.answer != "PROVED"), key=_Part.order)
    queries = sum(part.obligation.queries for part in parts)
    seconds = sum(part.obligation.seconds for part in parts)
    verdict, why = _judge(profile, invariant, bad[0] if bad else None)
    if verdict == "proved":
        why = f"in {queries} questions" + (f", with {', '.join(lemmas)}" if lemmas else "")
    where, broken = (bad[0].system, bad[0].obligation) if bad else ("", None)
    return Proof(invariant, verdict, why, lemmas, queries, seconds, where, broken)


@dataclass(frozen=True, slots=True)
class _Part:
    """An obligation in a system, the invariant's own or one that it leans on."""

    system: str
    obligation: Obligation
    own: bool

    def order(self) -> tuple[bool, bool, bool]:
        shown = self.obligation.counterexample
        return self.obligation.answer != "FAILED", not self.own, shown is None or not shown.plausible


def _judge(profile: Profile, invariant: str, bad: _Part | None) -> tuple[Word, str]:
    pinned = (f for f in profile.findings if f.invariant == invariant and f.shown_by == "search")
    finding = next(pinned, None)
    if bad is None:
        if finding is not None:
            return "finding gone", "pinned as an upstream finding, but it is proved"
        return "proved", ""
    if bad.obligation.answer == "UNDETERMINED":
        return "undetermined", f"z3 gave up on {bad.obligation.name} ({bad.system}): raise --timeout"
    if not bad.own:
        return "not proved", f"it leans on {bad.obligation.name}, which a step breaks ({bad.system})"
    if finding is not None:
        return "upstream finding", f"{finding.why} ({bad.system})"
    return "not proved", f"a step breaks it ({bad.system})"


def _proof_json(proof: Proof) -> dict[str, Any]:
    broken = proof.broken
    shown = broken.counterexample if broken else None
    return {
        "verdict": proof.verdict,
        "why": proof.why,
        "leans_on": list(proof.foundation),
        "questions": proof.queries,
        "seconds": round(proof.seconds, 3),
        "system": proof.system,
        "broken": broken.name if broken else None,
        "counterexample": shown.as_json() if shown else None,
    }
