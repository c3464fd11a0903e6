"""What a cache under test offers the suite: be driven by one event, and show its abstract state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Answer(StrEnum):
    """What a target says of one event.

    `done`: it happened, driven by this call.  `seen`: the target decides this event itself, and it has happened since
    the event before.  `absent`: the target decides it itself, and it has not happened.  `refused`: the target turned
    the event down, by its own rules.  `inexpressible`: the target has no such thing, or no way to bring it about; the
    reason is in the reply.
    """

    DONE = "done"
    SEEN = "seen"
    ABSENT = "absent"
    REFUSED = "refused"
    INEXPRESSIBLE = "inexpressible"


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one event; `why` says why not, in the target's words."""

    answer: Answer
    why: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One event in the words of docs/scenarios.md: `event r, s @n 3` has subjects r and s, node n and amount 3.

    `facts` are named values such as `why=client` or `ns=a`.
    """

    name: str
    subjects: tuple[str, ...] = ()
    node: str = ""
    amount: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """The size and the rules of what is driven; counts of tokens are in pages here, of time in passes.

    `prompts` are the prompts of requests as names of pages, so that two requests share a prefix by sharing names.
    `interval` 0 switches retries off.  `storage` names the pages that are stored at the start.  `layout` names the
    auxiliary pools: none, `swa` or `mamba`.  `policy` is how a wait for storage ends: wait_complete, best_effort,
    timeout.  `device` names the pages that the device holds at the start.  `context` 0 is a longest prompt that the
    cache does not know.
    """

    prompts: Mapping[str, tuple[str, ...]]
    mode: str = "buffer_only"
    layout: str = "dense"
    policy: str = "wait_complete"
    interval: int = 2
    max_attempts: int = 2
    threshold: int = 1
    pool: int = 16
    host: int = 16
    context: int = 8
    cap_fraction: float = 0.5
    ranks: int = 1
    storage: frozenset[str] = frozenset()
    device: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RequestView:
    """A request as the target shows it: its latest attempt.

    `state` is a state of spec/prefetch.toml, or `running`, `finished`, `absent`.  `attempt` counts from 0.  `spent` are
    re-issues charged.  `question` is whether a live operation is registered for it.  `hold`, `pinned` and `pages` are
    in pages: its staged hold, what its pin locks, the host pages of its live operation.  `base` is how many pages of
    its prompt the device held when its last question went out, None where not told.
    """

    state: str = "absent"
    attempt: int = 0
    marker: bool = False
    spent: int = 0
    question: bool = False
    pages: int = 0
    hold: int = 0
    pinned: int = 0
    loaded: int = 0
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """The abstract state of a cache under test, in pages and passes.

    `asked` counts the questions that went out to storage for each request, over all its attempts.  `orphans` are
    operations that still answer for nobody.  `host_free` and `pool_free` are None where the target does not tell.
    `idle` is the target's own word that nothing is queued, running or in flight.  `filling` are host pages
    being copied to the device, `orphan_pages` those of the orphans; None where not told.  `asked_by_rank` is `asked` on
    each rank, empty for one.  `faults` are what the target's own pools object to since the start, each as
    `invariant: what`: a double free, a slot freed under I/O.
    """

    now: int
    requests: Mapping[str, RequestView]
    asked: Mapping[str, int] = field(default_factory=dict)
    pinned: int = 0
    pin_cap: int = 0
    occupied: int = 0
    host_free: int | None = None
    pool_free: int | None = None
    orphans: int = 0
    believed: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    evicted: frozenset[str] = frozenset()
    idle: bool = False
    filling: int | None = None
    orphan_pages: int | None = None
    asked_by_rank: tuple[Mapping[str, int], ...] = ()
    faults: tuple[str, ...] = ()


class CacheUnderTest(Protocol):
    """One run of one cache.  Nothing waits and nothing sleeps: each completion lands when its event is driven."""

    name: str

    def drive(self, event: Event) -> Reply:
        """Bring the event about, or say what became of it.  Never raises for what the cache itself refuses."""

    def observe(self) -> Observed:
        """The state now."""

    def close(self) -> None:
        """Let everything go; a target may be built anew afterwards."""


class Target(Protocol):
    """Builds caches under test."""

    @property
    def name(self) -> str:
        """What the target is called."""

    def build(self, world: World) -> CacheUnderTest:
        """A fresh cache of that size.  Raises UnsupportedError where the target cannot have such a world."""


class UnsupportedError(Exception):
    """The target cannot have that world; one line."""
