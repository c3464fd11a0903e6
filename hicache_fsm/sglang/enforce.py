"""Giving back what nobody living owns, through the engine's own exits wherever there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .kinds import Kind
from .ledger import Ledger, Record
from .view import EngineView, key_of, rid_of


def _marker(view: EngineView, key: Any) -> None:
    retries = getattr(view.tree, "storage_prefetch_retries", None)
    if retries is not None:
        retries.cancel(rid_of(key))
    else:
        view.tree._storage_prefetch_missed_rids.discard(key)


def _entry(view: EngineView, key: Any) -> None:
    # pages that a thread still fills stay with the operation, whose last acknowledgement frees them
    view.tree.release_aborted_request(key)


def _pin(view: EngineView, key: Any) -> None:
    view.pipeline.release_anchor_lock(key)


def _context(view: EngineView, key: Any) -> None:
    view.pipeline.pop_prefix_ctx(key)


def _wait(view: EngineView, key: Any) -> None:
    view.tree._storage_prefetch_wait.pop(key, None)


def _hold(view: EngineView, key: Any) -> None:
    view.pipeline.release_staged_hold(key)


def _credit(view: EngineView, key: Any) -> None:
    view.tree.prefetch_loaded_tokens_by_reqid.pop(key, None)
    getattr(view.tree, "prefetch_loaded_storage_start_by_reqid", {}).pop(key, None)


REPAIRS: dict[Kind, Callable[[EngineView, Any], None]] = {
    Kind.ENTRY: _entry,
    Kind.HOLD: _hold,
    Kind.PIN: _pin,
    Kind.CONTEXT: _context,
    Kind.MARKER: _marker,
    Kind.WAIT: _wait,
    Kind.CREDIT: _credit,
}
"""By kind; earlier ones may give back later ones on their way. A copy in flight is never touched."""

DONE = {
    Kind.MARKER: "dropped the marker",
    Kind.ENTRY: "ended a prefetch of {} tokens",
    Kind.PIN: "released a pin of {} tokens",
    Kind.CONTEXT: "dropped the prefix context",
    Kind.WAIT: "dropped the wait budget",
    Kind.HOLD: "released a hold of {} tokens",
    Kind.CREDIT: "dropped a credit of {} loaded tokens",
    Kind.OCCUPANCY: "lowered the occupancy by {} tokens to what is owned",
    Kind.PINNED: "lowered the pinned tokens by {} to what is held",
    Kind.HOST_PAGES: "freed {} host slots that were nobody's",
    Kind.BELIEF: "lowered {} beliefs that the evidence contradicts",
}
"""What a repair of each kind did, with its amount."""


def may_repair(view: EngineView, record: Record) -> bool:
    """Whether a leftover is surely nobody's.

    A request in the waiting queue owns what is filed under its key, whatever the books say. An attempt that
    was never seen may live in a queue of disaggregation, which the books do not cover.
    """
    if record.exit is None and view.scheduler.disaggregation_mode.value != "null":
        return False
    return all(key_of(request) != record.key for request in view.scheduler.waiting_queue)


def give_back(ledger: Ledger, record: Record, now: int) -> list[tuple[Kind, int]]:
    """Release all leftovers of an owner that is gone; what was given back, with its amount.

    Raises what the engine's exit raises. What is still there afterwards is not in the answer.
    """
    before = {kind: record.held[kind] for kind in record.leftovers()}
    if not before or not may_repair(ledger.view, record):
        return []
    for kind, release in REPAIRS.items():
        if kind in before and kind in ledger.read(record, now):
            release(ledger.view, record.key)
    left = ledger.read(record, now)
    return [(kind, amount) for kind, amount in before.items() if kind not in left]


def mend_totals(ledger: Ledger, kind: Kind) -> int:
    """Set a counter of the engine to what the owners hold; by how many tokens it was too high.

    With pipeline parallelism a thread of its own counts too, and nothing is changed.
    """
    view = ledger.view
    surplus = ledger.drift().get(kind, 0)
    if not surplus or view.pipeline_ranks > 1:
        return 0
    if kind is Kind.PINNED:
        view.pipeline.anchor_locked_tokens_ -= surplus
    else:
        view.controller.prefetch_tokens_occupied -= surplus
    return surplus


def forget_beliefs(view: EngineView) -> None:
    """Nothing is known of a storage that was just attached."""
    view.tree.storage_existence_cache.clear()


def lower_beliefs(view: EngineView, pool: Any, pages: list[str], keep_pages: int) -> None:
    """The pages beyond the leading ``keep_pages`` of ``pages`` (hashes) are not stored."""
    beliefs = view.tree.storage_existence_cache
    if hasattr(beliefs, "pool"):
        beliefs.pool(pool).invalidate_beyond(pages, keep_pages)
    else:
        beliefs.invalidate_beyond(pool, pages, keep_pages=keep_pages)
