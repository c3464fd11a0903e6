"""When to ask again: passes are counted by a wheel of due passes, never by walking the queue."""

from collections.abc import Collection, Iterator, Sequence

from hicache_fsm.runtime.attempt import Attempt


class Pacing:
    """The attempts whose marker is up, and those that wait for a pass.

    Entries are dropped lazily: whoever takes them out checks that the attempt is still where it was. A wait
    of `interval` passes is one entry under the pass in which it ends, so a pass costs what is due in it.
    """

    __slots__ = ("_due", "_interval", "_next", "_raised")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._raised: dict[Attempt, None] = {}
        self._due: dict[int, list[Attempt]] = {}
        self._next = 0

    def raised(self, attempt: Attempt) -> None:
        """A marker went up: the next sweep serves it, and no earlier offer."""
        attempt.offered = -1
        self._raised[attempt] = None

    def wait(self, attempt: Attempt, now: int) -> None:
        """The sweep of pass `now` consumed the marker: due `interval` passes later (rules.retry_due)."""
        due = now + self._interval
        bucket = self._due.get(due)
        if bucket is None:
            self._due[due] = [attempt]
        else:
            bucket.append(attempt)

    def wait_all(self, attempts: Sequence[Attempt], now: int) -> None:
        """As `wait`, for many."""
        self._due.setdefault(now + self._interval, []).extend(attempts)

    def take_raised(self) -> Collection[Attempt]:
        """The attempts whose marker went up since the last sweep, each once."""
        raised = self._raised
        if raised:
            self._raised = {}
        return raised

    def take_due(self, now: int) -> list[Attempt]:
        """The attempts whose wait ends by pass `now`, each once; passes never swept are caught up with."""
        if now < self._next:
            return []
        due = self._due.pop(self._next, None) or []
        self._next += 1
        if self._next <= now:
            for missed in range(self._next, now + 1):
                due += self._due.pop(missed, [])
            self._next = now + 1
            due = list(dict.fromkeys(due))
        return due

    def begun(self, now: int) -> int:
        """The pass by which a wait must have begun to be over in pass `now`: later ones left their entry behind."""
        return now - self._interval

    def waiting(self) -> Iterator[Attempt]:
        """Everything entered, stale entries included: for audits only."""
        yield from self._raised
        for bucket in self._due.values():
            yield from bucket
