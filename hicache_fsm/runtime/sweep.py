"""The sweep of one scheduling pass: serves markers and finds whom to ask again, without walking the queue."""

from operator import attrgetter
from typing import Final

from hicache_fsm.machine import Row
from hicache_fsm.runtime.attempt import Attempt, AttemptKey
from hicache_fsm.runtime.core import Core
from hicache_fsm.runtime.guards import Guard, Moment

HEAD: Final = (',"facts":{"head_exempt":false}', ',"facts":{"head_exempt":true}')

OFFER: Final = "offer"

_ORDER = attrgetter("order")


class Sweeper:
    """Takes the sweeps that do not depend on whether the scheduler asks, and offers the others."""

    __slots__ = (
        "_asks",
        "_core",
        "_event",
        "_head_rule",
        "_last",
        "_missed",
        "_moments",
        "_offers",
        "_pending",
        "_reads",
        "_rows",
    )

    def __init__(self, core: Core) -> None:
        self._core = core
        self._event = core.table.event_ids["sweep"]
        self._missed, self._pending = core.table.state_ids["missed"], core.table.state_ids["pending"]
        self._head_rule = core.settings.constants.head_rule
        self._offers: list[Attempt] = []
        self._last = -1
        self._asks = core.table.mask(["asks"])
        self._reads = {state: self._reader(state) for state in (self._missed, self._pending)}
        self._rows: dict[tuple[int, int], Row | str | None] = {}
        self._moments = (Moment(0), Moment(0))
        for head, moment in enumerate(self._moments):
            moment.head, moment.facts = bool(head), HEAD[head]

    def sweep(self, now: int, head: AttemptKey | None) -> list[AttemptKey]:
        """The attempts to ask again in this pass, in queue order; `head` as in `begin_pass`."""
        core, missed, pending = self._core, self._missed, self._pending
        offers: list[Attempt] = []
        if self._head_rule and core.queue:
            first = core.queue.get(head) if head is not None else next(iter(core.queue.values()))
            if first is not None and (first.state == pending or first.state == missed):
                self._look(first, offers, now, head=True)
        for attempt in self._offers:
            if attempt.offered == self._last and (attempt.state == pending or attempt.state == missed):
                self._look(attempt, offers, now)
        for attempt in core.pacing.take_raised():
            if attempt.state == missed:
                self._look(attempt, offers, now)
        for attempt in core.pacing.take_due(now):
            if attempt.state == pending and core.pacing.due(attempt, now):
                self._look(attempt, offers, now)
        self._offers, self._last = offers, now
        if len(offers) > 1:
            offers.sort(key=_ORDER)
        return [attempt.key for attempt in offers]

    def is_offered(self, attempt: Attempt, now: int) -> bool:
        """Whether this pass returned the attempt and it still waits to be asked again."""
        return attempt.offered == now and (attempt.state == self._pending or attempt.state == self._missed)

    def _look(self, attempt: Attempt, offers: list[Attempt], now: int, *, head: bool = False) -> None:
        if attempt.offered == now:
            return
        moment = self._moments[head]
        moment.now = now
        truth = 0
        for bit, holds in self._reads[attempt.state]:
            if holds(attempt, moment):
                truth |= bit
        case = attempt.state, truth
        if case not in self._rows:
            self._rows[case] = self._decide(*case)
        row = self._rows[case]
        if row is OFFER:
            attempt.offered = now
            offers.append(attempt)
        elif not isinstance(row, Row):
            self._core.refuse(attempt, self._event)
        elif row.transition.source != row.transition.dest:
            self._core.take(attempt, self._event, moment, row)

    def _decide(self, state: int, truth: int) -> Row | str | None:
        """The row that the table takes, or OFFER where that depends on whether the scheduler asks."""
        table = self._core.table
        row = table.decide(state, self._event, truth)
        return row if row is table.decide(state, self._event, truth | self._asks) else OFFER

    def _reader(self, state: int) -> tuple[tuple[int, Guard], ...]:
        """What a sweep in this state depends on, but for whether the scheduler asks: bits and functions."""
        reads = self._core.table.reads(state, self._event) & ~self._asks
        guards = enumerate(self._core.guards)
        return tuple((1 << number, guard) for number, guard in guards if reads & 1 << number)
