"""Reads of SGLang's own structures: the only place that knows where 0.5.19 and 0.5.20+ keep things.

Every read is plain attribute access on the scheduler's thread; nothing here changes anything.
"""

from __future__ import annotations

from typing import Any


def key_of(request: Any) -> Any:
    """What the cache files a request under: its handle, or its id where there are no handles (0.5.19)."""
    handle = getattr(request, "cache_request_handle", None)
    return request.rid if handle is None else handle


def rid_of(key: Any) -> str:
    """The request id of a key."""
    return str(getattr(key, "rid", key))


def operation_key(operation: Any) -> Any:
    """The key that a storage operation was issued for."""
    handle = getattr(operation, "handle", None)
    return operation.request_id if handle is None else handle


class EngineView:
    """One scheduler's cache, as the recorder sees it."""

    def __init__(self, scheduler: Any) -> None:
        """Raises ``AttributeError`` when the scheduler has no HiCache tree."""
        self.scheduler = scheduler
        self.tree = scheduler.tree_cache
        self.controller = self.tree.cache_controller
        self.pipeline = getattr(self.tree, "buffer_pipeline", None)
        self._retries = hasattr(self.tree, "storage_prefetch_retries")

    @property
    def buffer_mode(self) -> bool:
        """Whether host memory is transit only."""
        return self.pipeline is not None

    def entry(self, key: Any) -> Any:
        """The live prefetch of a key, or None."""
        return self.tree.ongoing_prefetch.get(key)

    def live_operation(self, key: Any) -> Any:
        """The operation of the live prefetch of a key, or None."""
        entry = self.entry(key)
        return None if entry is None else entry.operation

    def hold(self, key: Any) -> Any:
        """The staged hold of a key, or None."""
        return None if self.pipeline is None else self.pipeline.staged_prefetches.get(key)

    def loaded_tokens(self, key: Any) -> int:
        """Tokens credited to a key since its last admission scan."""
        return int(self.tree.prefetch_loaded_tokens_by_reqid.get(key, 0))

    def pin_tokens(self, key: Any) -> int | None:
        """Tokens of the anchor that a key pins, or None."""
        lock = None if self.pipeline is None else self.pipeline.anchor_locks.get(key)
        return None if lock is None else int(lock.tokens)

    def parked(self) -> list[Any]:
        """Operations that wait for room, in their order."""
        return [] if self.pipeline is None else list(self.pipeline.pending_hit_allocs)

    def armed(self, request: Any, queued: bool) -> bool:
        """Whether a re-issue is armed for a request: a marker, or passes being counted."""
        if self._retries:
            return request.rid in self.tree.storage_prefetch_retries._pending
        if request.rid in self.tree._storage_prefetch_missed_rids:
            return True
        # the flag is never taken down again once the budget is spent or the request admitted
        counting: bool = request.storage_prefetch_retry_pending
        return queued and counting and request.storage_prefetch_retry_attempts < self.max_attempts

    def marked(self, key: Any) -> bool:
        """Whether the marker of a key's request id is up."""
        if self._retries:
            return rid_of(key) in self.tree.storage_prefetch_retries._pending
        return rid_of(key) in self.tree._storage_prefetch_missed_rids

    def markers(self) -> int:
        """Markers that are up, whosever they are."""
        if self._retries:
            return len(self.tree.storage_prefetch_retries._pending)
        return len(self.tree._storage_prefetch_missed_rids)

    @staticmethod
    def _memory() -> Any:
        from sglang.srt.runtime_context import get_memory

        return get_memory()

    @property
    def interval(self) -> int:
        """Scheduling passes between a miss and its re-issue; 0 is off."""
        return int(self._memory().hicache_storage_prefetch_retry_poll_interval)

    @property
    def max_attempts(self) -> int:
        """Re-issues a request may spend."""
        return int(self._memory().hicache_storage_prefetch_retry_max_attempts)

    @property
    def pinned_tokens(self) -> int:
        """Tokens of all anchor pins, as the engine counts them."""
        return 0 if self.pipeline is None else int(self.pipeline.anchor_locked_tokens_)

    @property
    def occupied_tokens(self) -> int:
        """Host tokens that the engine counts against prefetches; 0 without storage."""
        return int(getattr(self.controller, "prefetch_tokens_occupied", 0))

    def seen(self, request: Any, queued: bool) -> dict[str, object]:
        """The ``seen`` member of an event about a request."""
        key = key_of(request)
        operation = self.live_operation(key)
        members: dict[str, object] = {
            "entry": operation is not None,
            "armed": self.armed(request, queued),
            "spent": request.storage_prefetch_retry_attempts,
            "pinned_tokens": self.pinned_tokens,
            "occupied_tokens": self.occupied_tokens,
        }
        if self.pipeline is not None:
            members["hold"] = key in self.pipeline.staged_prefetches
            parked = self.pipeline.pending_hit_allocs
            members["parked"] = operation is not None and any(one is operation for one in parked)
        return members

    def header(self, version: str) -> dict[str, object]:
        """The members of a log's first line that describe the engine."""
        scheduler, tree = self.scheduler, self.tree
        rank = getattr(tree, "tp_rank", None)
        group = getattr(tree, "tp_group", None)
        members: dict[str, object] = {
            "source": "sglang",
            "version": version,
            "profile": "seed" if version == "0.5.19" else "sglang-0.5.23",
            "constants": {"interval": self.interval, "max_attempts": self.max_attempts},
            "mode": "buffer_only" if self.buffer_mode else "cache",
            "page_size": int(tree.page_size),
            "threshold_tokens": int(tree.prefetch_threshold),
            "pool_tokens": int(scheduler.token_to_kv_pool_allocator.size),
            "host_tokens": int(self.controller.mem_pool_host.size),
            "rank": int(group.rank() if rank is None and group is not None else rank or 0),
            "ranks": int(group.size() if group is not None else 1),
        }
        if self.pipeline is not None:
            members["pin_cap_tokens"] = int(self.pipeline.anchor_lock_cap_tokens)
        return members

    def residue(self) -> dict[str, int]:
        """What is still owned; all zero in an engine at rest."""
        return {
            "markers": self.markers(),
            "entries": len(self.tree.ongoing_prefetch),
            "holds": 0 if self.pipeline is None else len(self.pipeline.staged_prefetches),
            "pinned_tokens": self.pinned_tokens,
            "occupied_tokens": self.occupied_tokens,
        }
