"""SGLang's retries of missed storage prefetches, decided by the prefetch machine: drop-ins for the engine's own.

`StoragePrefetchRetries` has the surface of SGLang 0.5.20 to 0.5.23, `MissMarkers` that of 0.5.19. Under the
profile of their release they decide as the original does; docs/retries.md says what `recommended` mends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.rules import retry_due
from hicache_fsm.spec import Constants, Spec, load_spec

DROP: Final = 0
"""The marker is gone and nothing is asked."""
WAIT: Final = 1
"""The marker is consumed, and passes are counted from here."""
KEEP: Final = 2
"""One more pass is counted."""
ASK: Final = 3
"""The question goes out again."""

INTERVAL: Final = "hicache_storage_prefetch_retry_poll_interval"
MAX_ATTEMPTS: Final = "hicache_storage_prefetch_retry_max_attempts"


class Waiting(Protocol):
    """What is read of a request in SGLang's waiting queue; `attempts` are re-issues already made."""

    rid: str
    storage_prefetch_retry_attempts: int


R = TypeVar("R", bound=Waiting)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the table says of a sweep under one profile: a verdict for each case.

    `missed` is numbered by (immediate + 2 * budget left), `pending` by whether the wait is over; `head` is the
    verdict on a paced marker at the head of the queue. `interval` is in passes.
    """

    missed: tuple[int, int, int, int]
    pending: tuple[int, int]
    head: int
    interval: int
    max_attempts: int
    constants: Constants

    @property
    def mends(self) -> bool:
        """Whether a marker needs a question that was issued, and is its attempt's alone."""
        return self.constants.scope == "attempt"


def rules(profile: str, server_args: object = None, spec: Spec | None = None) -> Rules:
    """The rules of a profile, with SGLang's flags in `server_args` (an object or a mapping) before its constants.

    Raises ValueError for an unknown profile or a flag that is no whole number.
    """
    spec = load_spec() if spec is None else spec
    if profile not in spec.profiles:
        raise ValueError(f'unknown profile "{profile}": use one of {", ".join(sorted(spec.profiles))}')
    constants = spec.profiles[profile].constants
    table = CompiledMachine(spec.machines["prefetch"])

    def verdict(state: str, head: bool = False, **holds: bool) -> int:
        truth = table.mask(
            ["asks", "paces", *(["head_exempt"] if head else []), *(name for name in holds if holds[name])]
        )
        row = table.decide(table.state_ids[state], table.event_ids["sweep"], truth)
        effects = () if row is None else row.transition.effects
        if "ask" in effects:
            return ASK
        if "start_wait" in effects:
            return WAIT
        return KEEP if row is not None and row.dest == table.state_ids[state] else DROP

    known = constants.immediate_known_hit
    missed = [
        verdict("missed", immediate=known and immediate, budget_left=left)
        for left in (False, True)
        for immediate in (False, True)
    ]
    return Rules(
        (missed[0], missed[1], missed[2], missed[3]),
        (verdict("pending", due=False), verdict("pending", due=True)),
        verdict("missed", head=constants.head_rule, budget_left=True),
        _flag(server_args, INTERVAL, constants.interval),
        _flag(server_args, MAX_ATTEMPTS, constants.max_attempts),
        constants,
    )


def _flag(server_args: object, name: str, default: int) -> int:
    read = server_args.get if isinstance(server_args, Mapping) else partial(getattr, server_args)
    value = read(name, default)
    if type(value) is not int:
        raise ValueError(
            f"{name} is {value!r}: give a whole number of {'passes' if name == INTERVAL else 'attempts'}"
        )
    return value


@dataclass(slots=True)
class Marker:
    """A re-issue that is armed; `due_step` is None until a sweep consumes it, then the pass in which it is due."""

    immediate: bool
    storage_hit_end: int | None = None
    due_step: int | None = None


class StoragePrefetchRetries:
    """Markers by request id, swept once per scheduling pass: SGLang's class of this name, on the machine's table.

    A pass with nothing due costs the same however many are armed; one with something due walks the queue once.
    """

    profile = "sglang-0.5.23"
    server_args: object = None

    def __init__(self, profile: str | None = None, server_args: object = None) -> None:
        """Raises ValueError as `rules` does."""
        self.rules = rules(profile or self.profile, server_args or self.server_args)
        self._pending: dict[str, Marker] = {}
        self._step = 0
        self._fresh = 0
        self._ripe = 0
        self._wheel: dict[int, int] = {}
        self._asking = False

    def poll_miss(self, req_id: str, storage_hit_end: int | None = None) -> None:
        """A question missed: ask again after the interval."""
        self._raise(req_id, Marker(False, storage_hit_end))

    def refetch(self, req_id: str, storage_hit_end: int | None = None) -> None:
        """A known hit could not be fetched: ask again with the next pass."""
        self._raise(req_id, Marker(self.rules.constants.immediate_known_hit, storage_hit_end))

    def cancel(self, req_id: str) -> None:
        """Drop the request's marker, if any."""
        marker = self._pending.pop(req_id, None)
        if marker is None:
            return
        if marker.due_step is None:
            self._fresh -= 1
        else:
            self._served(marker.due_step)

    def clear(self) -> None:
        """Drop every marker."""
        self._pending.clear()
        self._wheel.clear()
        self._fresh = self._ripe = 0

    def pop_ready(
        self, waiting_queue: Sequence[R], interval: int | None = None, max_attempts: int | None = None
    ) -> list[tuple[R, int | None]]:
        """One sweep: the requests to ask again, in queue order, each with the end of its known hit in tokens.

        `interval` is in passes; both limits default to the flags.
        """
        rules, pending = self.rules, self._pending
        if interval is None:
            interval = rules.interval
        if max_attempts is None:
            max_attempts = rules.max_attempts
        self._step = step = self._step + 1
        if step in self._wheel:
            self._ripe += self._wheel.pop(step)
        if not waiting_queue or not pending:
            return []
        if interval <= 0 and rules.mends:
            self.clear()
            return []
        head = pending.get(waiting_queue[0].rid)
        if head is not None and not head.immediate and rules.head == DROP:
            self.cancel(waiting_queue[0].rid)
        if not self._fresh and not self._ripe:
            return []
        ready: list[tuple[R, int | None]] = []
        missed, waiting, armed = rules.missed, rules.pending, pending.get
        begun = 0
        for req in waiting_queue:
            marker = armed(req.rid)
            if marker is None:
                continue
            budget_left = req.storage_prefetch_retry_attempts < max_attempts
            due = marker.due_step
            if interval <= 0 and not marker.immediate:
                verdict = DROP
            elif due is None:
                verdict = missed[marker.immediate + 2 * budget_left]
            else:
                verdict = waiting[due <= step] if budget_left else DROP
            if verdict == KEEP:
                continue
            if due is None:
                self._fresh -= 1
            if verdict == WAIT:
                marker.due_step = step + interval
                begun += 1
                continue
            if due is not None:
                self._served(due)
            del pending[req.rid]
            if verdict == ASK:
                ready.append((req, marker.storage_hit_end))
        if begun:
            self._wheel[step + interval] = self._wheel.get(step + interval, 0) + begun
        return ready

    def begin(self, req: Any) -> None:
        """The request joins the queue, new or again: a marker of an earlier attempt is not this one's.

        Only for profiles that say so, and only called where `register` has hooked the queue.
        """
        if self.rules.mends:
            self.cancel(req.rid)
        if self.rules.constants.resets_budget:
            req.storage_prefetch_retry_attempts = 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While the cache decides whether a question goes out: a marker raised in here had none."""
        before, self._asking = self._asking, self.rules.mends
        try:
            yield
        finally:
            self._asking = before

    def _raise(self, rid: str, marker: Marker) -> None:
        if self._asking:
            return
        self.cancel(rid)
        self._pending[rid] = marker
        self._fresh += 1

    def _served(self, due: int) -> None:
        """A marker that was due in that step is gone: it no longer gives a sweep something to do."""
        if due <= self._step:
            self._ripe -= 1
        elif self._wheel[due] == 1:
            del self._wheel[due]
        else:
            self._wheel[due] -= 1


class MissMarkers(set[str]):
    """The missed request ids of SGLang 0.5.19, with the sweep of its scheduler.

    Pacing lives on the requests, as there: `storage_prefetch_retry_pending`, `..._wait_polls`, `..._attempts`.
    """

    profile = "seed"
    server_args: object = None

    def __init__(self, profile: str | None = None, server_args: object = None) -> None:
        """Raises ValueError as `rules` does."""
        super().__init__()
        self.rules = rules(profile or self.profile, server_args or self.server_args)
        self._asking = False

    def add(self, req_id: str, /) -> None:
        """A question of the request missed."""
        if not self._asking:
            super().add(req_id)

    def pop_storage_prefetch_miss(self, req_id: str) -> bool:
        """Whether the marker was up; it no longer is."""
        found = req_id in self
        self.discard(req_id)
        return found

    def sweep(
        self,
        waiting_queue: Sequence[Any],
        interval: int | None = None,
        max_attempts: int | None = None,
        pop: Callable[[str], bool] | None = None,
    ) -> Iterator[Any]:
        """One sweep: yields each request to ask again, in queue order, before it looks at the next.

        `pop` serves a marker (`pop_storage_prefetch_miss` by default); the limits default to the flags.
        """
        rules = self.rules
        interval = rules.interval if interval is None else interval
        max_attempts = rules.max_attempts if max_attempts is None else max_attempts
        pop = self.pop_storage_prefetch_miss if pop is None else pop
        if interval <= 0 and rules.mends:
            self.clear()
        if interval <= 0 or not waiting_queue:
            return
        head = waiting_queue[0]
        for req in waiting_queue:
            budget_left = req.storage_prefetch_retry_attempts < max_attempts
            if pop(req.rid):
                verdict = rules.missed[2 * budget_left]
                req.storage_prefetch_retry_pending = True
                req.storage_prefetch_retry_wait_polls = 0
            elif req.storage_prefetch_retry_pending:
                due = retry_due(req.storage_prefetch_retry_wait_polls, interval)
                verdict = rules.pending[due] if budget_left else DROP
            else:
                continue
            if req is head and rules.head == DROP:
                verdict = DROP
            if verdict == DROP:
                # Without a budget 0.5.19 leaves the flag up, which outlives the attempt.
                req.storage_prefetch_retry_pending = not rules.mends
                continue
            req.storage_prefetch_retry_wait_polls += 1
            if verdict == ASK:
                req.storage_prefetch_retry_pending = False
                req.storage_prefetch_retry_attempts += 1
                yield req

    def begin(self, req: Any) -> None:
        """As `StoragePrefetchRetries.begin`."""
        if self.rules.mends:
            self.discard(req.rid)
            req.storage_prefetch_retry_pending = False
        if self.rules.constants.resets_budget:
            req.storage_prefetch_retry_attempts = 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """As `StoragePrefetchRetries.asking`."""
        before, self._asking = self._asking, self.rules.mends
        try:
            yield
        finally:
            self._asking = before
