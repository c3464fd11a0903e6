"""The same state space counted by engines that share no code with the own search: TLC and SPIN."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hicache_fsm.conform.cases import case
from hicache_fsm.explore import Result
from hicache_fsm.export import SpinError, require_spin, spin_count
from hicache_fsm.model import Configuration, system
from hicache_fsm.spec import Spec
from hicache_fsm.tlc import Job, TlcError, locate, run

SAID: Final[Mapping[str, frozenset[str]]] = {
    "MCAdmission": frozenset(
        {
            "marker-owned", "marker-once", "attempts-bounded", "one-in-flight", "disabled-inert", "pin-cap",
            "pin-owned", "no-residue", "conservation", "asked-armed",
        }
    ),
    "MCNode": frozenset({"load-exclusive", "tombstone-once", "conservation"}),
    "MCRanks": frozenset({"lockstep"}),
}  # fmt: skip
"""The state invariants that each TLA+ module says, too."""


@dataclass(frozen=True, slots=True)
class Count:
    """What another engine found; `problem` is how it differs from the own search, or why there is nothing.

    `depth` is None where the engine does not tell it, `judged` are the invariants that it holds, too.
    """

    engine: str
    distinct: int | None
    depth: int | None
    seconds: float
    judged: tuple[str, ...] = ()
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether it found what the own search found."""
        return not self.problem

    def as_json(self) -> dict[str, Any]:
        """The count as plain values."""
        return {
            "engine": self.engine,
            "distinct": self.distinct,
            "depth": self.depth,
            "seconds": round(self.seconds, 3),
            "judged": list(self.judged),
            "agrees": self.agrees,
            "problem": self.problem,
        }


def missing(engine: str) -> str:
    """What an engine lacks on this machine, in one line with the mend; empty if nothing."""
    try:
        if engine == "tlc":
            locate()
        elif engine == "spin":
            require_spin()
    except (TlcError, SpinError) as error:
        return str(error)
    return ""


def counted(
    engine: str,
    spec: Spec,
    profile: str,
    configuration: Configuration,
    own: Result,
    *,
    memory: int = 0,
    limit_s: float = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Count:
    """Count with "tlc" or "spin" and compare with a complete own search; 0 leaves memory (bytes) and seconds open."""
    if engine == "spin":
        return _spin(spec, profile, configuration, own, memory, limit_s)
    return _tlc(spec, profile, configuration, own, memory, limit_s, tell)


def _spin(
    spec: Spec, profile: str, configuration: Configuration, own: Result, memory: int, limit_s: float
) -> Count:
    built = system(spec, profile, configuration)
    try:
        found = spin_count(built, own.stood_for, limit_s=limit_s, **({"memory": memory} if memory else {}))
    except SpinError as error:
        return Count("spin", None, None, 0.0, problem=str(error))
    return Count("spin", found.distinct, None, found.seconds, (), _differs(own, found.distinct))


def _tlc(
    spec: Spec,
    profile: str,
    configuration: Configuration,
    own: Result,
    memory: int,
    limit_s: float,
    tell: Callable[[str], None],
) -> Count:
    held = {name for name, verdict in own.verdicts.items() if verdict.outcome == "HELD"}
    job = case(spec, configuration, profile).job()
    judging, judged = _judging(job, held)
    try:
        found = run(locate(), replace(judging, heap=memory >> 20, limit_s=limit_s), tell)
    except TlcError as error:
        return Count("tlc", None, None, 0.0, problem=str(error))
    if found.verdict != "success":
        problem = f"TLC finds {found.property} violated, which the own search holds"
        return Count("tlc", found.distinct, None, found.seconds, problem=problem)
    problem = _differs(own, found.distinct, found.depth)
    return Count("tlc", found.distinct, found.depth, found.seconds, judged, problem)


def _judging(job: Job, held: Collection[str]) -> tuple[Job, tuple[str, ...]]:
    """The job, which asks for the state space only, with the state invariants that hold as the own search says."""
    cfg, module = f"{job.module}.cfg", job.extra[f"{job.module}.tla"]
    base = re.search(r"EXTENDS (\w+)", module)
    judged = tuple(sorted(SAID.get(base[1] if base else "", frozenset()) & set(held)))
    if not judged:
        return job, ()
    names = [f"    {''.join(part.capitalize() for part in name.split('-'))}Inv" for name in judged]
    text = "\n".join([job.extra[cfg], "INVARIANTS", *names, ""])
    return replace(job, extra={**job.extra, cfg: text}), judged


def _differs(own: Result, distinct: int, depth: int | None = None) -> str:
    if distinct != own.stood_for:
        return f"{distinct:,} states, the own search has {own.stood_for:,}"
    if depth is not None and depth != own.depth:
        return f"depth {depth}, the own search has {own.depth}"
    return ""
