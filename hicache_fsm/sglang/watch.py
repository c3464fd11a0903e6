"""The hooks that the books need: who comes, who goes, and whose holdings a call may change.

None of them decides anything. Most run before the original and note a key; what came of the call is read at the
next judgement. Names follow upstream's methods.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from .guard import After, Before, Touch
from .keeper import Keeper, head
from .sides import KV
from .view import key_of, rid_of

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
TREE = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
PIPELINE = "sglang.srt.mem_cache.buffer_mode.pipeline.BufferModePipeline"
RETRIES = "sglang.srt.mem_cache.storage_prefetch.StoragePrefetchRetries"

ASKED = ("entry", "context", "marker")
"""What a question may file under its key; 0.5.19 also arms a re-issue in there."""
PINNED = ("pin",)
LOADED = ("hold", "credit")
ARMED = ("marker",)


class Watch:
    """Notes for the keeper. All methods belong to the scheduler's thread."""

    def __init__(self, keeper: Keeper, version: str) -> None:
        self._keeper = keeper
        self._note = keeper.notes.append
        self._version = version
        self._arriving: Any = None
        """The request at the queue's door."""
        self._acknowledged: list[int] = []
        """Ids of the storage reads that a drain ended last."""
        self.written: dict[int, Any] = {}
        """The operations of writes whose acknowledgements are being drained, by id."""

    def before(self) -> dict[str, Touch]:
        """What runs before a method, by the method's full path."""
        common: dict[str, Touch] = {
            f"{SCHEDULER}.on_idle": self._keeper.idle,
            f"{BATCH}.prepare_for_extend": self.admitted,
            f"{TREE}.prefetch_from_storage": self.asked,
            f"{TREE}.revoke_pending_prefetch": self.revoked,
            f"{TREE}.release_aborted_request": self.released,
            f"{TREE}._handle_prefetch_result": self.loaded,
            f"{TREE}._drain_storage_control_queues_impl": self.drained,
            f"{PIPELINE}.try_lock_anchor": self.pinned,
            f"{PIPELINE}.release_staged_hold": self.changed,
            f"{PIPELINE}.init_load_back": self.load_back,
            f"{PIPELINE}.try_finish_load_back": self.load_back_ended,
            f"{PIPELINE}.finish_storage_write_ack": self.write_ended,
        }
        if self._version == "0.5.19":
            return common | {
                f"{SCHEDULER}._retry_missed_storage_prefetches": self.swept,
                f"{TREE}.pop_prefetch_loaded_tokens": self.collected_0519,
            }
        return common | {
            f"{TREE}.pop_prefetch_loaded_tokens": self.collected,
            f"{TREE}.pop_prefetch_loaded_span": self.collected,
            f"{RETRIES}.poll_miss": self.armed,
            f"{RETRIES}.refetch": self.armed,
            f"{RETRIES}.cancel": self.disarmed,
        }

    def pairs(self) -> dict[str, tuple[Before, After]]:
        """What runs before and after a method."""
        return {
            f"{SCHEDULER}.get_next_batch_to_run": (self._keeper.pass_begins, self._keeper.pass_ends),
            f"{SCHEDULER}._add_request_to_queue": (self.arrives, self.arrived),
            f"{TREE}.reset": (self.flush, self.flushed),
            f"{TREE}.detach_storage_backend": (self.flush, self.detached),
        }

    # ---- who comes and goes

    def arrives(self, scheduler: Any, request: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """A request is at the queue's door."""
        self._arriving = request
        self._keeper.enter(request)
        return scheduler, request

    def arrived(self, noted: tuple[Any, Any], _result: Any) -> None:
        """It is in, or was turned away."""
        scheduler, request = noted
        ledger = self._keeper.ledger
        if ledger is not None and self.turned_away(scheduler, request):
            ledger.leave(request.rid, f"abort ({self.reason(request.rid, scheduler)})", self._keeper.now)
        self._arriving = None

    @staticmethod
    def turned_away(scheduler: Any, request: Any) -> bool:
        """Whether a request that has been at the door is not in the queue; with disaggregation it may be in others."""
        queue = scheduler.waiting_queue
        if queue and queue[-1] is request:
            return False
        return scheduler.disaggregation_mode.value == "null" and all(one is not request for one in queue)

    def reason(self, rid: str, scheduler: Any = None) -> str:
        """Why a request is being aborted: ``client``, ``queue_limit`` or ``priority``."""
        arriving = self._arriving
        if arriving is None:
            return "client"
        if scheduler is None and self._keeper.ledger is not None:
            scheduler = self._keeper.ledger.view.scheduler
        refused = arriving.rid == rid and arriving.priority is not None
        return "priority" if refused and not scheduler.enable_priority_scheduling else "queue_limit"

    def attempt_of(self, rid: str) -> int:
        """The number of the newest attempt of a request id, from 0."""
        ledger = self._keeper.ledger
        record = None if ledger is None else ledger.records.get(rid)
        return 0 if record is None else record.attempt or 0

    def admitted(self, batch: Any, *_: Any, **__: Any) -> None:
        """Whoever is in a new batch has left the queue."""
        ledger = self._keeper.ledger
        if ledger is not None:
            for request in batch.reqs:
                ledger.leave(request.rid, "admit", self._keeper.now)

    def released(self, tree: Any, key: Any, *_: Any, **__: Any) -> None:
        """A request leaves without being admitted."""
        ledger, rid = self._keeper.ledger, rid_of(key)
        if ledger is not None:
            entry = tree.ongoing_prefetch.get(key)
            if entry is not None:
                ledger.note_read(entry.operation)
            newest = ledger.records.get(rid)
            # else a repair gives back what an older attempt left
            if newest is not None and newest.key == key:
                ledger.leave(rid, f"abort ({self.reason(rid)})", self._keeper.now)
            self._note((key, (), self._keeper.now))

    # ---- whose holdings may change

    def changed(self, _owner: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """A method whose first argument is a key, and which takes something away."""
        self._note((key, (), self._keeper.now))

    def asked(self, _tree: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """A question for a key."""
        self._note((key, ASKED, self._keeper.now))

    def revoked(self, _tree: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """A prefetch ends before its read; 0.5.19 has just armed a re-issue where there is one."""
        self._note((key, ARMED if self._version == "0.5.19" else (), self._keeper.now))

    def pinned(self, _pipeline: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """A pin is asked for: the storage read is about to be launched."""
        self._note((key, PINNED, self._keeper.now))

    def armed(self, _retries: Any, rid: str, *_: Any, **__: Any) -> None:
        """0.5.20+: a re-issue is armed."""
        self._note((rid, ARMED, self._keeper.now))

    def disarmed(self, retries: Any, rid: str, *_: Any, **__: Any) -> None:
        """0.5.20+: a re-issue is taken down, if there is one."""
        if rid in retries._pending:
            self._note((rid, (), self._keeper.now))

    def swept(self, scheduler: Any, *_: Any, **__: Any) -> None:
        """0.5.19: a sweep takes down the markers of whoever is queued."""
        missed = scheduler.tree_cache._storage_prefetch_missed_rids
        if missed:
            for rid in missed:
                self._note((rid, (), self._keeper.now))

    def collected(self, tree: Any, key: Hashable, *_: Any, **__: Any) -> None:
        """The admission scan collects loaded tokens, of whoever is ready, loaded or not."""
        loaded = tree.prefetch_loaded_tokens_by_reqid
        if loaded and key in loaded:
            self._note((key, (), self._keeper.now))

    def collected_0519(self, tree: Any, rid: str, *_: Any, **__: Any) -> None:
        """0.5.19: and it takes the marker down."""
        if rid in tree.prefetch_loaded_tokens_by_reqid or rid in tree._storage_prefetch_missed_rids:
            self._note((rid, (), self._keeper.now))

    def loaded(self, _tree: Any, operation: Any, *_: Any, **__: Any) -> None:
        """A prefetch ends with what has been read; if it was cut short, a thread reads on."""
        ledger = self._keeper.ledger
        if ledger is not None:
            if operation.id not in self._acknowledged:
                ledger.note_read(operation)
            self._note((ledger.view.key_of_operation(operation), LOADED, self._keeper.now))

    def load_back(self, _pipeline: Any, params: Any, *_: Any, **__: Any) -> None:
        """A hold may become a copy to the device."""
        ledger = self._keeper.ledger
        if ledger is not None:
            ledger.expect_fill(key_of(params.req), self._keeper.now)

    def load_back_ended(self, _pipeline: Any, ack_id: int, *_: Any, **__: Any) -> None:
        """A copy to the device may have ended."""
        ledger = self._keeper.ledger
        if ledger is not None:
            ledger.note_fill(ack_id, self._keeper.now)

    # ---- queues and writes

    def drained(
        self,
        tree: Any,
        n_storage_hit: Any = None,
        n_ack_prefetch: Any = None,
        n_backup: Any = None,
        *_: Any,
        **__: Any,
    ) -> None:
        """Acknowledgements are about to be drained: reads that end, writes with what they stored."""
        if n_backup == 0 and n_ack_prefetch == 0:
            return
        ledger, controller = self._keeper.ledger, tree.cache_controller
        if ledger is None:
            return
        if n_ack_prefetch != 0:
            acks = head(controller.ack_prefetch_queue, n_ack_prefetch)
            self._acknowledged = [ack.operation.id for ack in acks if ack.completed_req]
            for ended in self._acknowledged:
                ledger.in_flight.pop(ended, None)
        if n_backup != 0:
            self.written = {
                operation.id: operation for operation in head(controller.ack_backup_queue, n_backup)
            }

    def write_ended(self, pipeline: Any, operation_id: int, *_: Any, **__: Any) -> None:
        """A write is acknowledged; the engine believes it either way."""
        entry = pipeline.ongoing_backup.get(operation_id)
        if entry is None:
            return
        operation = self.written.get(operation_id)
        for pool, pages in pages_by_pool(entry).items():
            stored = pages_written(operation, pool, pipeline._cache.page_size)
            if stored < len(pages):
                self._keeper.write_failed(pool, list(pages), stored)

    # ---- the whole cache

    def flush(self, *_: Any, **__: Any) -> bool:
        """The cache is about to lose its queues."""
        return True

    def flushed(self, _noted: bool, _result: Any) -> None:
        """The cache was emptied under the queue."""
        self._keeper.flushed()

    def detached(self, _noted: bool, _result: Any) -> None:
        """The storage is gone, whatever was believed of it."""
        self._keeper.detached()


def pages_by_pool(entry: Any) -> Mapping[Any, Sequence[str]]:
    """Hashes of the pages that a write to storage has, by pool."""
    return getattr(entry, "keys_by_pool", None) or {KV: entry.intent.snapshot.hash_values}


def pages_written(operation: Any, pool: Any, page_size: int) -> int:
    """Leading pages of a pool that a write has stored, by the operation's own count."""
    if operation is None:
        return 0
    if pool == KV:
        return int(operation.completed_tokens) // page_size
    return int(operation.pool_storage_result.extra_pool_hit_pages.get(pool, 0))
