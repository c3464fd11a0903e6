"""The sweep of one scheduling pass: serves markers and finds whom to ask again, without walking the queue."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from hicache_fsm.runtime.attempt import Attempt, AttemptKey
from hicache_fsm.runtime.core import Core
from hicache_fsm.runtime.decision import Fork, Way, grow
from hicache_fsm.runtime.guards import Moment

HEAD: Final = (',"facts":{"head_exempt":false}', ',"facts":{"head_exempt":true}')

OFFER: Final = "offer"
"""What a sweep leads to where it depends on whether the scheduler asks."""

Swept = Way | str | None
Tree = Fork[Swept] | Swept

_ORDER = attrgetter("order")


class Sweeper:
    """Takes the sweeps that do not depend on whether the scheduler asks, and offers the others.

    An attempt behind the head is decided by `_missed_tree` or, once its wait is over, by `_due_tree`: the
    wheel has found that it is due.
    """

    __slots__ = (
        "_core",
        "_due_tree",
        "_event",
        "_head_rule",
        "_head_trees",
        "_last",
        "_missed",
        "_missed_tree",
        "_moments",
        "_offers",
        "_pending",
    )

    def __init__(self, core: Core) -> None:
        self._core = core
        self._event = core.table.event_ids["sweep"]
        self._missed, self._pending = core.table.state_ids["missed"], core.table.state_ids["pending"]
        self._head_rule = core.settings.constants.head_rule
        self._offers: list[Attempt] = []
        self._last = 0
        self._missed_tree = self._tree(self._missed, head_exempt=False)
        self._due_tree = self._tree(self._pending, head_exempt=False, due=True)
        self._head_trees = {
            state: self._tree(state, head_exempt=True) for state in (self._missed, self._pending)
        }
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
                self._look([first], first.state, self._head_trees[first.state], offers, now, head=True)
        if self._offers:
            again = [one for one in self._offers if one.offered == self._last]
            self._look(again, missed, self._missed_tree, offers, now)
            self._look(again, pending, self._due_tree, offers, now)
        raised = core.pacing.take_raised()
        if raised:
            self._look(raised, missed, self._missed_tree, offers, now)
        due = core.pacing.take_due(now)
        if due:
            begun = core.pacing.begun(now)
            self._look([one for one in due if one.swept <= begun], pending, self._due_tree, offers, now)
        self._offers, self._last = offers, now
        if len(offers) > 1:
            offers.sort(key=_ORDER)
        return [attempt.key for attempt in offers]

    def is_offered(self, attempt: Attempt) -> bool:
        """Whether the last sweep returned the attempt and it still waits to be asked again.

        A pass that an answer cut short swept nothing, so what the sweep before it offered stands.
        """
        if attempt.offered != self._last:
            return False
        return attempt.state == self._pending or attempt.state == self._missed

    def _look(
        self,
        attempts: Iterable[Attempt],
        state: int,
        tree: Tree,
        offers: list[Attempt],
        now: int,
        *,
        head: bool = False,
    ) -> None:
        """Sweep those of the attempts that are in the state, each once."""
        if tree is OFFER:
            for attempt in attempts:
                if attempt.state == state and attempt.offered != now:
                    attempt.offered = now
                    offers.append(attempt)
            return
        core = self._core
        moment = self._moments[head]
        moment.now = now
        alike: list[Attempt] = []
        last: Way | None = None
        for attempt in attempts:
            if attempt.state != state or attempt.offered == now:
                continue
            way = tree
            while type(way) is Fork:
                way = way.yes if way.holds(attempt, moment) else way.no
            if way is OFFER:
                attempt.offered = now
                offers.append(attempt)
            elif type(way) is not Way:
                core.refuse(attempt, self._event)
            elif way.moves:
                if way is not last:
                    if last is not None:
                        core.take_all(alike, moment, last)
                    alike, last = [], way
                attempt.offered = now  # looked at: one whose marker went up twice is here twice
                alike.append(attempt)
        if last is not None:
            core.take_all(alike, moment, last)

    def _tree(self, state: int, **settled: bool) -> Tree:
        """The decision of a sweep in a state, some of its guards settled, but for whether the scheduler asks."""
        core, event, table = self._core, self._event, self._core.table
        known = {table.mask([name]): holds for name, holds in settled.items()}
        asks = table.mask(["asks"])

        def leaf(truth: int) -> Swept:
            row = table.decide(state, event, truth)
            return core.way(row) if row is table.decide(state, event, truth | asks) else OFFER

        return grow(
            [(bit, known.get(bit, holds)) for bit, holds in core.guards(state, event) if bit != asks], leaf
        )
