"""Several ranks: a lifecycle on each, the same events, and storage's answers taken in as far as every rank has them."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hicache_fsm.suite.protocol import Answer, CacheUnderTest, Event, Observed, Reply

ANSWERS: Final = frozenset({"hit", "miss", "done", "fail", "discard"})
"""Words that reach a rank when they like, and wait there for the pass that takes them in."""


class Ranks:
    """Caches side by side, one a rank; `agreed` takes in no more answers than the rank that has fewest."""

    def __init__(self, name: str, caches: Sequence[CacheUnderTest], *, agreed: bool) -> None:
        self.name = name
        self._caches = caches
        self._agreed = agreed
        self._inbox: list[deque[Event]] = [deque() for _ in caches]
        self._faults: list[str] = []

    def drive(self, event: Event) -> Reply:
        """An answer waits for the next pass, on the rank it names or on all; anything else happens on all ranks."""
        if event.name in ANSWERS:
            return self._arrive(event)
        match event.name:
            case "tick":
                for _ in range(1 if event.amount is None else event.amount):
                    self._drain()
                    reply = self._everywhere(replace(event, amount=1))
                return reply
            case "settle":
                while any(self._inbox):
                    self._drain()
        return self._everywhere(event)

    def observe(self) -> Observed:
        """The first rank's state, and what each of them asked."""
        seen = [cache.observe() for cache in self._caches]
        faults = (*self._faults, *(fault for each in seen for fault in each.faults))
        return replace(seen[0], asked_by_rank=tuple(each.asked for each in seen), faults=faults)

    def close(self) -> None:
        """Let every rank go."""
        for cache in self._caches:
            cache.close()

    def _arrive(self, event: Event) -> Reply:
        facts = dict(event.facts)
        rank = facts.pop("rank", None)
        if rank is not None and int(rank) >= len(self._caches):
            return Reply(Answer.INEXPRESSIBLE, f"there are {len(self._caches)} ranks, from 0")
        for number, inbox in enumerate(self._inbox):
            if rank is None or int(rank) == number:
                inbox.append(replace(event, facts=facts))
        return Reply(Answer.DONE)

    def _drain(self) -> None:
        fewest = min(map(len, self._inbox))
        for cache, inbox in zip(self._caches, self._inbox, strict=True):
            for _ in range(fewest if self._agreed else len(inbox)):
                cache.drive(inbox.popleft())

    def _everywhere(self, event: Event) -> Reply:
        replies = [cache.drive(event) for cache in self._caches]
        if len({reply.answer for reply in replies}) > 1:
            told = ", ".join(f"rank {rank} {reply.answer}" for rank, reply in enumerate(replies))
            self._faults.append(f"lockstep: {event.name}: {told}")
        return replies[0]


def ranked(name: str, build: Callable[[], CacheUnderTest], ranks: int, *, agreed: bool) -> Ranks:
    """So many caches side by side."""
    return Ranks(name, [build() for _ in range(ranks)], agreed=agreed)
