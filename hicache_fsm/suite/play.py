"""One run of one cache: driven event by event, judged after each, and brought to rest at the end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hicache_fsm.suite.coverage import Coverage
from hicache_fsm.suite.oracle import Oracle
from hicache_fsm.suite.protocol import Answer, Event, Observed, Reply, Target, World
from hicache_fsm.suite.reference import Reference

REST: Final = (Event("resume"), Event("attach"), Event("settle"), Event("settle"))
"""What brings any cache to rest that can come to rest: storage is there and answers, copies end, passes go by."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that must not be: the invariant broken, what was seen, and after how many events.

    `invariant` is an id of spec/invariants.toml, `reference` where the reference model foretold something else, or
    `crash` where driving the cache raised.  `expect` is the condition that the model foretold; `resting` says that the
    problem only shows once the cache is brought to rest.
    """

    invariant: str
    message: str
    at: int
    expect: str = ""
    resting: bool = False

    def __str__(self) -> str:
        return f"after {self.at} events: {self.invariant}: {self.message}"


class Play:
    """Drives a fresh cache.  Close it, or use it as a context."""

    def __init__(self, target: Target, world: World, *, exact: bool = False) -> None:
        """`exact` holds the cache to the reference model's word, not to the invariants alone.

        Raises UnsupportedError where the target cannot have such a world.
        """
        self.world = world
        self.cache = target.build(world)
        self.seen = self.cache.observe()
        self.events: list[Event] = []
        self.coverage = Coverage(runs=1)
        self._oracle = Oracle(world, self.seen)
        self._reference = Reference(world) if exact else None
        self.broken = False
        self._resting = 0

    def happen(self, event: Event) -> list[Problem]:
        """Drive one event and judge what it led to."""
        if self.broken:
            return []
        self.events.append(event)
        try:
            reply = self.cache.drive(event)
            seen = self.cache.observe()
        except Exception as error:  # whatever a cache raises here is its own fault, and the end of the run
            self.broken = True
            return [self._problem("crash", f"{type(error).__name__}: {error}")]
        self.coverage.see(event, reply, self.seen, seen)
        problems = self._judge(event, reply, seen)
        self.seen = seen
        return problems

    def rest(self) -> list[Problem]:
        """Let everything end that can end; what then still waits or owns something never will let go."""
        self._resting = len(self.events) + 1
        for event in REST:
            problems = self.happen(event)
            if problems:
                return problems
        return [] if self.broken else [self._problem(*each) for each in residue(self.seen)]

    @property
    def own_events(self) -> tuple[Event, ...]:
        """The events before the cache was brought to rest."""
        return tuple(self.events[: self._resting - 1] if self._resting else self.events)

    @property
    def rest_events(self) -> tuple[Event, ...]:
        """Those that brought it to rest."""
        return tuple(self.events[self._resting - 1 :] if self._resting else ())

    def close(self) -> None:
        """Let the cache go."""
        self.cache.close()

    def __enter__(self) -> "Play":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _judge(self, event: Event, reply: Reply, seen: Observed) -> list[Problem]:
        found = [self._problem(each.invariant, each.message) for each in self._oracle.see(event, reply, seen)]
        if self._reference is not None and reply.answer is not Answer.INEXPRESSIBLE:
            mismatches = self._reference.see(event, reply, seen)
            found += [self._problem("reference", each.message, each.expect) for each in mismatches]
        return found

    def _problem(self, invariant: str, message: str, expect: str = "") -> Problem:
        return Problem(invariant, message, len(self.events), expect, self._resting > 0)


def residue(seen: Observed) -> list[tuple[str, str]]:
    """What is wrong with a cache that has come to rest: (invariant, what)."""
    found = []
    ends = ("finished", "aborted", "absent")
    waiting = [f"{rid} is {view.state}" for rid, view in seen.requests.items() if view.state not in ends]
    if waiting:
        found.append(("progress", f"storage answered and passes went by, yet {', '.join(waiting)}"))
    if seen.orphans:
        found.append(("progress", f"{seen.orphans} operations still answer for nobody"))
    if not waiting and not seen.orphans:
        if seen.occupied or seen.pinned:
            found.append(
                (
                    "no-residue",
                    f"all have ended, yet {seen.occupied} host pages and {seen.pinned} pins are held",
                )
            )
        elif not seen.idle:
            found.append(("progress", "all have ended and nothing is held, yet the cache is not idle"))
    return found


def play(
    target: Target, world: World, events: Sequence[Event], *, exact: bool = False
) -> tuple[Play, list[Problem]]:
    """Drive the whole sequence and bring the cache to rest, up to the first event that breaks something."""
    with Play(target, world, exact=exact) as run:
        for event in events:
            problems = run.happen(event)
            if problems:
                return run, problems
        return run, run.rest()
