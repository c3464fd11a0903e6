"""The sweep of one scheduling pass: serves markers and finds whom to ask again, without walking the queue."""

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final

from hicache_fsm.machine import Fork, grow
from hicache_fsm.runtime.attempt import Attempt, AttemptKey
from hicache_fsm.runtime.core import Core
from hicache_fsm.runtime.decision import Way
from hicache_fsm.runtime.guards import Moment, Which, moment_of, which

HEAD: Final = (',"facts":{"head_exempt":false}', ',"facts":{"head_exempt":true}')

OFFER: Final = "offer"
"""What a sweep leads to where it depends on whether the scheduler asks."""

Leaf = Way | str | None
Tree = Fork[Which, Leaf] | Leaf

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
        self._moments = (moment_of(0), moment_of(0))
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
        """Sweep those of the attempts, all different, that are in the state and not yet offered in this pass."""
        live = [one for one in attempts if one.state == state and one.offered != now]
        core = self._core
        moment = self._moments[head]
        moment.now = now
        for leaf, alike in _sort(tree, live, moment):
            if leaf is OFFER:
                for attempt in alike:
                    attempt.offered = now
                offers += alike
            elif type(leaf) is not Way:
                for attempt in alike:
                    core.refuse(attempt, self._event)
            elif leaf.moves:
                core.take_all(alike, moment, leaf)

    def _tree(self, state: int, **settled: bool) -> Tree:
        """The decision of a sweep in a state, some of its guards settled, but for whether the scheduler asks."""
        core, event, table = self._core, self._event, self._core.table
        known = {table.mask([name]): holds for name, holds in settled.items()}
        asks = table.mask(["asks"])

        def leaf(truth: int) -> Leaf:
            row = table.decide(state, event, truth)
            return core.way(row) if row is table.decide(state, event, truth | asks) else OFFER

        guards = [(bit, known.get(bit, holds)) for bit, holds in core.guards(state, event) if bit != asks]
        return grow(
            [(bit, holds if isinstance(holds, bool) else which(holds)) for bit, holds in guards], leaf
        )


def _sort(tree: Tree, attempts: list[Attempt], moment: Moment) -> Iterator[tuple[Leaf, list[Attempt]]]:
    """Where the tree leads, and which of the attempts, each once."""
    while attempts and type(tree) is Fork:
        holding = tree.holds(attempts, moment)
        if len(holding) == len(attempts):
            tree = tree.yes
            continue
        if holding:
            yield from _sort(tree.yes, holding, moment)
            held = set(holding)
            attempts = [one for one in attempts if one not in held]
        tree = tree.no
    if attempts:
        yield tree, attempts  # type: ignore[misc] # a Fork was excluded by the loop
