"""The observers of the cache: its queues, pins, holds, nodes and beliefs."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from . import releases
from .drain import Drain
from .recorder import Recorder
from .view import rid_of
from .watch import Watch, pages_by_pool, pages_written

Observer = Generator[None, Any, None]
UNGUARDED = ("0.5.19", "0.5.20", "0.5.21", "0.5.22")
"""Lower beliefs by the answer to a question that some rank did not put."""
NO_PIN = frozenset({"anchor_lost", "no_anchor", "unservable"})


class CacheHooks:
    """Observers, with the little context that passes between nested calls."""

    def __init__(self, recorder: Recorder, watch: Watch, version: str) -> None:
        self._recorder = recorder
        self._watch = watch
        self._version = version
        self._drain: Drain | None = None

    # ---- queues

    def drain_queues(
        self,
        _tree: Any,
        n_storage_hit: Any = None,
        n_ack_prefetch: Any = None,
        *_: Any,
        **__: Any,
    ) -> Observer:
        """Answers and acknowledgements reach the scheduler."""
        view = self._recorder.view
        if view is None:
            yield
            return
        drain = self._drain = Drain(self._recorder, view, n_storage_hit, n_ack_prefetch)
        try:
            yield
        finally:
            self._drain = None
        drain.tell()

    # ---- pins and holds

    def try_lock_anchor(self, pipeline: Any, key: Any, *_: Any, **__: Any) -> Observer:
        """A pin is asked for."""
        held = key in pipeline.anchor_locks
        verdict = yield
        why = verdict if isinstance(verdict, str) else verdict[0]
        if self._drain is not None:
            self._drain.pins[key] = why
        lock = pipeline.anchor_locks.get(key)
        self._pin("pin", key, why="held" if held else why, tokens=int(lock.tokens) if lock else None,
                  facts={"anchored": why not in NO_PIN})  # fmt: skip

    def release_anchor_lock(self, pipeline: Any, key: Any) -> Observer:
        """A pin is given back."""
        lock = pipeline.anchor_locks.get(key)
        yield
        if lock is not None:
            self._pin("unpin", key, tokens=int(lock.tokens))

    def _pin(self, event: str, key: Any, **members: object) -> None:
        view, attempt = self._recorder.view, self._recorder.attempt(rid_of(key))
        if view is not None and attempt is not None:
            seen = {"pinned_tokens": view.pinned_tokens}
            self._recorder.write("pin", event, rid=rid_of(key), attempt=attempt.number, seen=seen, **members)

    def refetch_staged(self, _pipeline: Any, hold: Any) -> Observer:
        """The device base under a hold shrank."""
        yield
        self._recorder.prefetch("shrink", hold.request.rid, tokens=int(hold.num_tokens))

    def release_staged_hold(self, pipeline: Any, key: Any, reason: str | None = None) -> Observer:
        """A hold goes back unused although its request stays in the queue."""
        hold = pipeline.staged_prefetches.get(key)
        yield
        leaves = reason in ("device_covered", "device_capacity") or (
            reason is None and self._version == "0.5.19"
        )
        attempt = self._recorder.attempt(rid_of(key))
        queue = () if self._recorder.view is None else self._recorder.view.scheduler.waiting_queue
        if hold is None or not leaves or attempt is None or all(one is not attempt.request for one in queue):
            return
        self._recorder.prefetch(
            "revoke", rid_of(key), why=reason or "device_covered", tokens=int(hold.num_tokens)
        )

    # ---- nodes and beliefs

    def evict(self, *_: Any, **__: Any) -> Observer:
        """Device tokens are taken from the tree."""
        evicted = yield
        if evicted.num_tokens_evicted:
            self._recorder.write("node", "evict", tokens=int(evicted.num_tokens_evicted))

    def launch_write(self, _pipeline: Any, intent: Any, *args: Any, **__: Any) -> Observer:
        """A write leaves the device."""
        launched = yield
        if launched:
            # 0.5.22 and later hand over the keys by pool
            pools = args[2] if len(args) == 3 else {"kv": intent.snapshot.hash_values}
            for pool, pages in pools.items():
                self._recorder.write("belief", "write", pool=str(pool), pages=len(pages))

    def finish_storage_write(self, pipeline: Any, operation_id: int) -> Observer:
        """A write is acknowledged; the engine believes it either way."""
        entry = pipeline.ongoing_backup.get(operation_id)
        yield
        if entry is None:
            return
        operation = self._watch.written.get(operation_id)
        for pool, pages in pages_by_pool(entry).items():
            whole = pages_written(operation, pool, pipeline._cache.page_size) >= len(pages)
            event = "stored" if whole else "write_failed"
            self._recorder.write("belief", event, pool=str(pool), pages=len(pages))

    def heal_from_query(self, tree: Any, operation: Any) -> Observer:
        """An answer raises and lowers beliefs; since 0.5.23 only one that no rank skipped."""
        # read first, as upstream does: an I/O thread may set it at any time
        chain = operation.all_hash_values
        skipped = self._version not in UNGUARDED and "kv" not in operation.query_pool_hit_pages
        yield
        if (
            tree.host_memory_mode != "buffer_only"
            or chain is None
            or skipped
            or getattr(operation, "deadline_expired", False)
        ):
            return
        found = int(operation.storage_hit_count or 0) // tree.page_size
        if found and releases.learns_from_answers(self._version):
            self._recorder.write("belief", "confirm", pool="kv", pages=found)
        if len(chain) > found:
            self._recorder.write("belief", "deny", pool="kv", pages=len(chain) - found)

    def check_hybrid_result(self, tree: Any, _key: Any, *args: Any, **__: Any) -> Observer:
        """A hybrid fetch that some pool cut short is discarded."""
        kept = yield
        if not kept and tree.host_memory_mode == "buffer_only":
            chain = next(arg for arg in args if isinstance(arg, list))
            operation = args[0]
            pages = int(getattr(operation, "completed_tokens", 0)) // tree.page_size
            self._recorder.write(
                "belief", "discard", pool="kv", pages=len(chain), keep_pages=min(pages, len(chain))
            )

    def clear(self, *_: Any, **__: Any) -> Observer:
        """Storage is emptied, unless it refuses."""
        cleared = yield
        if cleared:
            self._recorder.write("belief", "clear")

    def reset(self, *_: Any, **__: Any) -> Observer:
        """The cache is flushed under the queue."""
        yield
        self._each_queued("flush")
        self._recorder.write("belief", "reset")

    def detach(self, *_: Any, **__: Any) -> Observer:
        """The backend is detached under the queue."""
        yield
        self._each_queued("detach")
        self._recorder.write("belief", "detach")

    def _each_queued(self, event: str) -> None:
        for rid in self._recorder.queued():
            self._recorder.prefetch(event, rid)
