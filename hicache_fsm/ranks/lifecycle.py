"""Feeds a rank's digest from a lifecycle: the decisions that its event log would have."""

from hicache_fsm.machine import Row
from hicache_fsm.ranks.digest import RankDigest
from hicache_fsm.runtime import HiCacheLifecycle, Listener
from hicache_fsm.runtime.attempt import Attempt, Operation, PinPlan
from hicache_fsm.runtime.guards import Moment

ANCHORED = (',"facts":{"anchored":false}', ',"facts":{"anchored":true}')


class Decisions(Listener):
    """Hears one lifecycle, from its beginning or from the same pass on all ranks."""

    __slots__ = ("_decide",)

    def __init__(self, life: HiCacheLifecycle, digest: RankDigest) -> None:
        self._decide = digest.decide
        life.listen(self)

    def queued(self, now: int, attempt: Attempt, again: str) -> None:
        rid, number = attempt.key
        self._decide(now, ("prefetch", "enqueue", rid, number, attempt.tokens, 0, "", ""))

    def stepped(self, now: int, attempt: Attempt, moment: Moment, row: Row, op: Operation | None) -> None:
        rid, number = attempt.key
        self._decide(
            now,
            (
                "prefetch",
                row.transition.event,
                rid,
                number,
                moment.tokens,
                op.number if op is not None else 0,
                moment.facts,
                moment.why,
            ),
        )

    def left(self, now: int, attempt: Attempt, event: str) -> None:
        rid, number = attempt.key
        self._decide(now, ("prefetch", event, rid, number, 0, 0, "", ""))

    def pinned(self, now: int, plan: PinPlan) -> None:
        rid, number = plan.attempt.key
        facts = ANCHORED[plan.anchored]
        self._decide(now, ("pin", "pin", rid, number, plan.anchor.tokens, 0, facts, plan.why))

    def unpinned(self, now: int, attempt: Attempt, event: str, tokens: int) -> None:
        rid, number = attempt.key
        self._decide(now, ("pin", event, rid, number, tokens, 0, "", ""))
