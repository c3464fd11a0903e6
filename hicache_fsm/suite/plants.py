"""Faults planted in the runtime, one at a time: what the suite must find, or it checks nothing."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from hicache_fsm.runtime import HiCacheLifecycle, core
from hicache_fsm.runtime.attempt import Attempt, AttemptKey
from hicache_fsm.runtime.effects import Effects
from hicache_fsm.runtime.guards import Guard, Moment, prefetch_guards
from hicache_fsm.runtime.numbers import AttemptNumbers
from hicache_fsm.runtime.pacing import Pacing
from hicache_fsm.runtime.settings import Settings
from hicache_fsm.spec import Spec, Witness, apply_witness, load_spec
from hicache_fsm.suite.campaign import one_run
from hicache_fsm.suite.play import Problem
from hicache_fsm.suite.protocol import Target
from hicache_fsm.suite.targets.runtime import RuntimeTarget

PROFILE: Final = "recommended"

SEED: Final = 0
RUNS: Final = 300
"""The default budget: random runs in which a fault must show."""


@dataclass(frozen=True, slots=True)
class Plant:
    """One fault: what is wrong, in the spec that the runtime follows or in the runtime itself."""

    about: str
    spec: Callable[[Spec], Spec] | None = None
    lifecycle: Callable[..., HiCacheLifecycle] = HiCacheLifecycle

    def target(self, spec: Spec | None = None) -> Target:
        """The runtime with the fault in it."""
        whole = load_spec() if spec is None else spec
        return RuntimeTarget(PROFILE, self.spec(whole) if self.spec else whole, self.lifecycle)


def _row(action: str, target: str, event: str, name: str = "", **more: str) -> Callable[[Spec], Spec]:
    """A change of rows: an effect or a guard of an event is gone, or another in its place."""
    witness = Witness(
        action=action,  # type: ignore[arg-type]
        target=target,
        machine=more.get("machine", "prefetch"),
        event=event,
        name=name,
        source=more.get("source", ""),
        dest=more.get("dest", ""),
        value=more.get("value", ""),
    )
    return lambda spec: apply_witness(spec, witness, PROFILE)


def _set(**constants: object) -> Callable[[Spec], Spec]:
    """Another value for a constant of the profile."""

    def change(spec: Spec) -> Spec:
        for name, value in constants.items():
            witness = Witness(action="set", target=name, value=value)  # type: ignore[arg-type]
            spec = apply_witness(spec, witness, PROFILE)
        return spec

    return change


@contextmanager
def _swapped(owner: Any, name: str, instead: Any) -> Iterator[None]:
    was = getattr(owner, name)
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, was)


def _built_with(owner: Any, name: str, instead: Any) -> Callable[..., HiCacheLifecycle]:
    """A lifecycle that was built while `owner.name` was something else, and kept it."""

    def build(*arguments: Any, **options: Any) -> HiCacheLifecycle:
        with _swapped(owner, name, instead):
            return HiCacheLifecycle(*arguments, **options)

    return build


def _guard(name: str, instead: Callable[[Settings], Guard]) -> Callable[..., HiCacheLifecycle]:
    def guards(settings: Settings) -> Mapping[str, Guard | bool]:
        return {**prefetch_guards(settings), name: instead(settings)}

    return _built_with(core, "prefetch_guards", guards)


def _budget_and_one(settings: Settings) -> Guard:
    return lambda attempt, moment: attempt.spent <= settings.constants.max_attempts


def _always(settings: Settings) -> Guard:
    return lambda attempt, moment: True


def _cap_and_one(*arguments: Any, **options: Any) -> HiCacheLifecycle:
    life = HiCacheLifecycle(*arguments, **options)
    life._core.pins.cap += 1
    return life


class _EarlyPacing(Pacing):
    """Ends each wait a pass early."""

    def __init__(self, interval: int) -> None:
        super().__init__(max(interval - 1, 1))


class _NoPacing(Pacing):
    """Lets nobody wait."""

    def __init__(self, interval: int) -> None:
        super().__init__(1)


def _paced_by(pacing: type[Pacing]) -> Callable[..., HiCacheLifecycle]:
    """A lifecycle with another wheel, and no guard behind it."""

    def build(*arguments: Any, **options: Any) -> HiCacheLifecycle:
        with _swapped(core, "Pacing", pacing):
            return _guard("due", _always)(*arguments, **options)

    return build


class _NeverForgets(Effects):
    """Leaves an attempt the mark of a known hit, whatever it misses later."""

    def _asked(self, attempt: Attempt, moment: Moment) -> None:
        attempt.op = self._ledger.new_operation(attempt)

    def _raise_marker(self, attempt: Attempt, moment: Moment) -> None:
        known = attempt.immediate
        super()._raise_marker(attempt, moment)
        attempt.immediate = known


class _ForgetsTheFirstPart(Effects):
    """Takes the tail for the whole hold."""

    def _to_hold(self, attempt: Attempt, pages: int) -> None:
        super()._to_hold(attempt, pages)
        attempt.hold_pages = pages


class _SameNumber(AttemptNumbers):
    """Counts no attempts."""

    def take(self, rid: str, after: int = -1) -> int:
        return 0


def _same_number(*arguments: Any, **options: Any) -> HiCacheLifecycle:
    life = HiCacheLifecycle(*arguments, **options)
    life._numbers = _SameNumber()
    return life


class _AlwaysAttached(HiCacheLifecycle):
    """Asks a storage that is gone."""

    @property
    def attached(self) -> bool:
        return True

    @attached.setter
    def attached(self, attached: bool) -> None:
        pass


class _StaleTaken(HiCacheLifecycle):
    """Takes the answer of an older question for the newest one's."""

    def missed(self, key: AttemptKey, op: int, why: str = "below_threshold") -> bool:
        return super().missed(key, self.operation(key) or op, why)

    def loaded(self, key: AttemptKey, op: int, tokens: int = 0) -> bool:
        return super().loaded(key, self.operation(key) or op, tokens)

    def failed(self, key: AttemptKey, op: int, why: str = "read_error") -> bool:
        return super().failed(key, self.operation(key) or op, why)


class _UnpinsAnyone(HiCacheLifecycle):
    """An abort gives back the pin of whoever pinned first."""

    def abort(self, key: AttemptKey, why: str = "client") -> bool:
        done = super().abort(key, why)
        holder = next(iter(pin.key for pin in self._core.pins.holders() if pin.held), None)
        if done and holder is not None:
            self.unpin(holder)
        return done


PLANTS: Final[Mapping[str, Plant]] = {
    "abort keeps its marker": Plant(
        "a release is gone from one exit", _row("drop", "effect", "abort", "lower_marker")
    ),
    "abort keeps its pin": Plant("a release is gone from one exit", _row("drop", "effect", "abort", "unpin")),
    "abort keeps its hold": Plant(
        "a release is gone from one exit", _row("drop", "effect", "abort", "release_hold")
    ),
    "abort keeps its operation": Plant(
        "a release is gone from one exit", _row("drop", "effect", "abort", "orphan_operation")
    ),
    "admission keeps its pin": Plant(
        "a release is gone from one exit", _row("drop", "effect", "admit", "unpin")
    ),
    "flush keeps its hold": Plant(
        "a release is gone from one exit", _row("drop", "effect", "flush", "release_hold")
    ),
    "the unguarded door": Plant("a whole exit releases nothing", _set(leaky_door=True)),
    "orphans keep their pages": Plant(
        "pages of a stopped read never come back",
        _row("drop", "effect", "end", "free_orphan_pages", machine="operation"),
    ),
    "abort frees early": Plant(
        "pages go back while storage still writes them (#31668)",
        _row("swap", "effect", "abort", "orphan_operation", value="free_pages"),
    ),
    "a read's pages freed before they are staged": Plant(
        "a swapped order: the pages are given back first, and the hold is empty",
        _row("swap", "effect", "done", "stage_hold", value="free_pages"),
    ),
    "no budget": Plant("a guard is gone", lifecycle=_guard("budget_left", _always)),
    "budget off by one": Plant("one re-issue too many", lifecycle=_guard("budget_left", _budget_and_one)),
    "no pacing": Plant("a guard is gone", lifecycle=_paced_by(_NoPacing)),
    "pacing off by one": Plant("asked again a pass early", lifecycle=_paced_by(_EarlyPacing)),
    "no pin cap": Plant("a guard is gone", _row("drop", "guard", "pin", "fits", machine="pin")),
    "pin cap off by one": Plant("one page too many is pinned", lifecycle=_cap_and_one),
    "keyed by the request id": Plant("an answer is looked up by request id (#39318)", _set(scope="rid")),
    "stale answer accepted": Plant("a late answer is taken for the newest question's", lifecycle=_StaleTaken),
    "attempts not counted": Plant("a key cut down to the request id", lifecycle=_same_number),
    "armed without a question": Plant("a too short span raises a marker (#40042)", _set(arms_too_short=True)),
    "budget kept over a retraction": Plant("a lost reset", _set(resets_budget=False)),
    "known hit never forgotten": Plant(
        "a lost reset: the next miss is not paced", lifecycle=_built_with(core, "Effects", _NeverForgets)
    ),
    "tail replaces what is held": Plant(
        "the part held already is forgotten", lifecycle=_built_with(core, "Effects", _ForgetsTheFirstPart)
    ),
    "asks a detached storage": Plant("a guard is gone", lifecycle=_AlwaysAttached),
    "somebody else's pin released": Plant("an unpin by another than its holder", lifecycle=_UnpinsAnyone),
    "two load-backs on one node": Plant(
        "a guard is gone (#35931)", _row("drop", "guard", "load", "unclaimed", machine="node")
    ),
    "tombstone freed twice": Plant(
        "the wrong release (#36637)",
        _row("swap", "effect", "evict", "free_full", machine="node", value="free_both"),
    ),
    "failed writes are believed": Plant("a lost belief update", _set(believes_failed=True)),
    "beliefs outlive their storage": Plant("a lost reset", _set(forgets_detached=False)),
    "discards teach nothing": Plant(
        "a transition is gone (#36386)",
        _row("drop", "transition", "discard", machine="belief", source="believed", dest="unknown"),
    ),
}
"""Every fault by its name."""


@dataclass(frozen=True, slots=True)
class Found:
    """What gave a fault away: the problem, and after how many runs and events in all."""

    problem: Problem
    runs: int
    events: int


def find(target: Target, *, runs: int = RUNS, seed: int = SEED) -> Found | None:
    """Random runs held to the reference model, up to the first that breaks something; None if none does."""
    events = 0
    for number in range(runs):
        run, problems = one_run(target, seed, number, exact=True)
        events += len(run.events)
        if problems:
            return Found(problems[0], number + 1, events)
    return None


def table(spec: Spec | None = None) -> str:
    """The table of docs/suite.md: each fault, what found it, and after how many runs and events."""
    spec = load_spec() if spec is None else spec
    lines = ["| fault | what is wrong | found by | runs | events |", "|---|---|---|---|---|"]
    for name, plant in PLANTS.items():
        found = find(plant.target(spec))
        by = f"{found.problem.invariant} | {found.runs} | {found.events:,}" if found else "nothing | | "
        lines.append(f"| {name} | {plant.about} | {by} |")
    return "\n".join(lines) + "\n"
