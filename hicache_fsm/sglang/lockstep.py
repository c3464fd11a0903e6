"""Ranks of tensor parallelism compare what they decided, every so many passes, over a group of their own.

A sink that keeps a digest of each event that ranks decide alike, and two hooks: one makes the group once the
scheduler stands, one compares before a pass begins. A thread watches for ranks that stand still. Only with
``HICACHE_FSM_RANKS``; else no collective is ever called.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Self

from hicache_fsm.ranks import Difference, RankComparison, RankDigest, RanksError, StallWatch, side_group
from hicache_fsm.ranks.digest import BELIEFS, belief_facts

from .guard import Guard
from .keeper import Keeper
from .kinds import Kind
from .modes import Options
from .sink import Audit, Finding, Repair, Totals

LOGGER = logging.getLogger(__name__)
COMPARED = frozenset({"prefetch", "pin"})
"""The machines whose events all ranks must decide alike; of beliefs, those of ``ranks.digest.BELIEFS``."""
SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"


class Lockstep:
    """One rank's digest and comparison. A fault in here ends the comparison and reaches neither engine nor plugin."""

    def __init__(self, every: int, timeout_s: float) -> None:
        """Compare every ``every`` passes; a rank that does not come is waited for ``timeout_s`` seconds."""
        self.compared = 0
        """Comparisons made."""
        self.differences = 0
        self._every = every
        self._timeout_s = timeout_s
        self._keeper: Keeper | None = None
        self._guard: Guard | None = None
        self._digest: RankDigest | None = None
        self._watch: StallWatch | None = None
        self._comparison: RankComparison | None = None
        self._now = 0
        self._texts: dict[tuple[tuple[str, object], ...], str] = {}

    @classmethod
    def asked(cls, options: Options) -> Self | None:
        """None where no comparison is asked for."""
        return cls(options.ranks, options.ranks_timeout) if options.ranks else None

    # ---- hooks

    def register(self, registry: Any, kinds: Any, keeper: Keeper, guard: Guard) -> None:
        """Register the two hooks, after those of the plugin; differences go to its ``keeper``.

        Once its ``guard`` has switched the plugin off, this rank withdraws and lets no other wait.
        """
        self._keeper, self._guard = keeper, guard
        registry.register(f"{SCHEDULER}.__init__", self.built, kinds.AFTER)
        registry.register(f"{SCHEDULER}.get_next_batch_to_run", self.pass_begins, kinds.BEFORE)

    def built(self, _result: object, scheduler: Any, *_: Any, **__: Any) -> None:
        """After ``Scheduler.__init__``: make the group, a collective of the ranks that decide alike."""
        tree = scheduler.tree_cache
        group = next((one for one in _groups(tree) if one is not None and one.size() > 1), None)
        if group is None or not getattr(scheduler, "enable_hicache_storage", False):
            LOGGER.info("hicache-fsm: one rank alone, or no storage: nothing to compare")
            return
        try:
            from torch import distributed

            side = side_group(
                ranks=distributed.get_process_group_ranks(group), timeout_s=self._timeout_s, members_only=True
            )
            digest = RankDigest(passes=max(256, self._every))
            store = distributed.distributed_c10d._get_default_store()
            comparison = RankComparison(digest, side, every=self._every, store=store)
            self._watch = StallWatch(
                digest,
                # a store of its own connection: a call of one thread must not wait for another's
                store.clone() if hasattr(store, "clone") else store,
                name=side.group_name,
                rank=comparison.rank,
                ranks=comparison.ranks,
                patience_s=self._timeout_s,
                busy=lambda: _busy(scheduler),
                tell=lambda line: LOGGER.error("hicache-fsm: %s", line),
            )
            self._watch.start()
            self._comparison, self._digest = comparison, digest
        except Exception:
            LOGGER.exception("hicache-fsm compares no ranks; the engine runs on")

    def pass_begins(self, *_: Any, **__: Any) -> None:
        """Before ``get_next_batch_to_run``, and so before the plugin deals with what was found."""
        comparison = self._comparison
        if comparison is None:
            return
        self._now += 1
        if self._guard is not None and self._guard.failed:
            comparison.withdraw()
        try:
            difference = comparison.passed(self._now)
            self.compared = comparison.compared
            if self._watch is not None:
                self._watch.passed(self._now, comparison.since)
            if difference is not None:
                self._differ(difference)
        except RanksError as error:
            self._stop()
            LOGGER.error("hicache-fsm compares no ranks any more, the engine runs on: %s", error)
        except Exception:
            self._stop()
            LOGGER.exception("hicache-fsm compares no ranks after a fault; the engine runs on")

    def _stop(self) -> None:
        self._comparison = self._digest = None
        if self._watch is not None:
            self._watch.stop()

    def _differ(self, difference: Difference) -> None:
        self.differences += 1
        finding = Finding(
            invariant="lockstep",
            kind=Kind.DECISION,
            pass_=self._now - 1,
            rid=None,
            attempt=None,
            amount=1,
            since_pass=difference.pass_,
            left_pass=None,
            exit=None,
            message=str(difference),
        )
        if self._keeper is not None:
            self._keeper.report(finding)

    # ---- as a sink

    def engine(self, header: Mapping[str, object]) -> None:
        """Nothing: ``built`` has the scheduler itself."""

    def transition(
        self, pass_: int, machine: str, event: str, rid: str | None, members: Mapping[str, Any]
    ) -> None:
        """One more decision, unless it is of a machine that is each rank's own."""
        digest = self._digest
        if digest is None:
            return
        try:
            self._decide(digest, pass_, machine, event, rid, members)
        except Exception:
            self._digest = None
            if self._comparison is not None:
                self._comparison.withdraw()
            LOGGER.exception("hicache-fsm compares no ranks after a fault; the engine runs on")

    def _decide(
        self,
        digest: RankDigest,
        pass_: int,
        machine: str,
        event: str,
        rid: str | None,
        members: Mapping[str, Any],
    ) -> None:
        if machine not in COMPARED:
            if machine == "belief" and event in BELIEFS:
                digest.decide(pass_, (machine, event, "", 0, 0, 0, belief_facts(members), ""))
            return
        get = members.get
        facts = get("facts")
        digest.decide(
            pass_,
            (
                machine,
                event,
                rid or "",
                get("attempt", 0),
                get("tokens", 0),
                get("op", 0),
                "" if not facts else self._text(facts),
                get("why", ""),
            ),
        )

    def _text(self, facts: Mapping[str, object]) -> str:
        """Facts as the event log has them; few sets of them ever occur."""
        key = tuple(facts.items())
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = f',"facts":{json.dumps(dict(facts), separators=(",", ":"))}'
        return text

    def totals(self, pass_: int, totals: Totals) -> None:
        """Not compared."""

    def violation(self, finding: Finding) -> None:
        """Not compared."""

    def repair(self, repair: Repair) -> None:
        """Not compared."""

    def audit(self, audit: Audit) -> None:
        """Not compared."""

    def close(self) -> None:
        """No comparison at the end: ranks may end at different passes."""
        self._stop()


def _busy(scheduler: Any) -> bool:
    """Whether passes should be made; read from another thread while the scheduler's makes none."""
    if getattr(scheduler, "_engine_paused", False):
        return False
    return bool(scheduler.waiting_queue or scheduler.running_batch.reqs)


def _groups(tree: Any) -> list[Any]:
    """Groups of the ranks that share one scheduler's decisions, the first of more than one counts.

    As the cache itself chooses (``_all_reduce_attn_groups``): with data-parallel attention only the ranks of one
    attention group decide alike.
    """
    return [getattr(tree, name, None) for name in ("attn_tp_group", "attn_cp_group", "tp_group")]
