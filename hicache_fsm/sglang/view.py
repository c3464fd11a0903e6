"""Reads of SGLang's own structures: the only place that knows where 0.5.19 and 0.5.20+ keep things.

Every read is plain attribute access on the scheduler's thread; nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any

from . import releases
from .sides import beside

FILED = ("marker", "entry", "wait", "credit", "pin", "context", "hold", "fill")
"""What the engine files under a key, by the names of ``kinds.Kind``."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})


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
        self.pipeline: Any = getattr(self.tree, "buffer_pipeline", None)
        self._retries = hasattr(self.tree, "storage_prefetch_retries")
        self._budgets = hasattr(self.tree, "_storage_prefetch_wait")
        self._counts_by_operation = "operation" in signature(self.tree._prefetch_occupied_span).parameters

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

    def beside(self, key: Any) -> str:
        """What a message adds of a prefetch or a hold that has host slots of pools beside the KV pool."""
        entry, hold = self.entry(key), self.hold(key)
        transfers = [] if hold is None else list(hold.aux_xfers)
        for parts in ({} if entry is None else entry.comp_xfers or {}).values():
            transfers += parts
        return "".join(f" and {len(slots)} slots of pool {pool}" for pool, slots in beside(transfers))

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

    # ---- what is filed under one key

    def holdings(self, key: Any, rid: str) -> tuple[dict[str, int], int]:
        """What is filed under a key, and host tokens counted against prefetches for it.

        By the names of ``FILED``, with tokens where a kind has a size. Copies in flight are filed by
        acknowledgement instead: see ``fill``.
        """
        tree, pipeline = self.tree, self.pipeline
        held: dict[str, int] = {}
        occupied = 0
        # most maps are empty most of the time, and hashing a handle costs more than looking whether they are
        if rid in (
            tree.storage_prefetch_retries._pending if self._retries else tree._storage_prefetch_missed_rids
        ):
            held["marker"] = 1
        if (entries := tree.ongoing_prefetch) and (entry := entries.get(key)) is not None:
            held["entry"] = len(entry.prefetch_key)
            occupied = self._occupied_by(entry)
        if (waits := self._waits()) and key in waits:
            held["wait"] = 1
        if credits_ := tree.prefetch_loaded_tokens_by_reqid:
            credit = credits_.get(key)
            if credit is not None:
                held["credit"] = int(credit)
        if pipeline is not None:
            if (locks := pipeline.anchor_locks) and (lock := locks.get(key)) is not None:
                held["pin"] = int(lock.tokens)
            if (contexts := pipeline._prefetch_prefix_ctx) and key in contexts:
                held["context"] = 1
            if (holds := pipeline.staged_prefetches) and (hold := holds.get(key)) is not None:
                held["hold"] = int(hold.num_tokens)
                occupied += int(hold.occupied_tokens)
        return held, occupied

    def _occupied_by(self, entry: Any) -> int:
        if self._counts_by_operation:
            return int(
                self.tree._prefetch_occupied_span(
                    entry.prefetch_key, entry.host_indices, operation=entry.operation
                )
            )
        return int(self.tree._prefetch_occupied_span(entry.prefetch_key, entry.host_indices))

    def counts(self) -> list[int]:
        """How many keys hold each kind of ``FILED``, for the whole engine; no pins, holds, ... in cache mode."""
        tree, pipeline = self.tree, self.pipeline
        markers = (
            tree.storage_prefetch_retries._pending if self._retries else tree._storage_prefetch_missed_rids
        )
        waits = tree._storage_prefetch_wait if self._budgets else NOTHING
        entries, credits_ = tree.ongoing_prefetch, tree.prefetch_loaded_tokens_by_reqid
        if pipeline is None:
            return [len(markers), len(entries), len(waits), len(credits_), 0, 0, 0, 0]
        return [
            len(markers),
            len(entries),
            len(waits),
            len(credits_),
            len(pipeline.anchor_locks),
            len(pipeline._prefetch_prefix_ctx),
            len(pipeline.staged_prefetches),
            self._filling() if pipeline.ongoing_buffer_load_back else 0,
        ]

    def _filling(self) -> int:
        return len({self._fill_key(fill) for fill in self.pipeline.ongoing_buffer_load_back.values()})

    def filed_keys(self) -> set[Any]:
        """Every key that anything is filed under, and the ids of all markers."""
        tree, pipeline = self.tree, self.pipeline
        keys = {*tree.ongoing_prefetch, *self._waits(), *tree.prefetch_loaded_tokens_by_reqid}
        if self._retries:
            keys.update(tree.storage_prefetch_retries._pending)
        else:
            keys.update(tree._storage_prefetch_missed_rids)
        if pipeline is not None:
            keys.update(pipeline.anchor_locks, pipeline._prefetch_prefix_ctx, pipeline.staged_prefetches)
            keys.update(self._fill_key(fill) for fill in pipeline.ongoing_buffer_load_back.values())
        return keys

    def waits_for(self, key: Any) -> bool:
        """Whether a key has a wait budget."""
        waits = self._waits()
        return bool(waits) and key in waits

    def collects(self, tree: Any, key: Any) -> bool:
        """Whether an admission scan that collects a key's loaded tokens would change anything."""
        if key in tree.prefetch_loaded_tokens_by_reqid:
            return True
        return not self._retries and key in tree._storage_prefetch_missed_rids

    def _waits(self) -> Any:
        return self.tree._storage_prefetch_wait if self._budgets else NOTHING

    @staticmethod
    def _fill_key(fill: Any) -> Any:
        return fill.request if hasattr(fill, "request") else fill.req_id

    @staticmethod
    def fill_id(hold: Any) -> int:
        """The acknowledgement id that the copy of a hold will have: upstream's ``load_back_id``."""
        return -int(hold.operation_id) - 1

    def fill(self, ack_id: int) -> Any:
        """The copy in flight of an acknowledgement id, or None."""
        return None if self.pipeline is None else self.pipeline.ongoing_buffer_load_back.get(ack_id)

    def key_of_operation(self, operation: Any) -> Any:
        """The key that a storage operation was issued for."""
        return operation_key(operation)

    @property
    def pin_cap_tokens(self) -> int:
        """The most tokens that pins may hold; 0 where there are none."""
        return 0 if self.pipeline is None else int(self.pipeline.anchor_lock_cap_tokens)

    def totals(self) -> tuple[int, int, int]:
        """Tokens pinned, the cap on them, and host tokens counted against prefetches, as the engine counts."""
        pipeline = self.pipeline
        occupied = getattr(self.controller, "prefetch_tokens_occupied", 0)
        if pipeline is None:
            return 0, 0, occupied
        return pipeline.anchor_locked_tokens_, pipeline.anchor_lock_cap_tokens, occupied

    # ---- what an audit reads

    @property
    def all_host_owners_known(self) -> bool:
        """Whether every owner of a host slot can be listed now.

        In cache mode the tree owns slots: it must be walkable, and at rest, as a write shows only when done.
        """
        if self.pipeline is not None:
            return True
        return hasattr(self.tree.tree_core, "_collect_all_nodes") and self.at_rest

    @property
    def at_rest(self) -> bool:
        """Whether nothing is queued, running, or in flight between the tiers.

        0.5.19 calls an engine idle whose buffered writes are still on their way to the host.
        """
        writes = self.pipeline is not None and bool(
            self.pipeline.ongoing_write_through or self.pipeline.ongoing_backup
        )
        return not writes and bool(self.scheduler.is_fully_idle())

    def storage_busy(self) -> bool:
        """Whether something is on its way between the scheduler and storage."""
        queues = (
            "prefetch_queue",
            "prefetch_buffer",
            "prefetch_hit_queue",
            "ack_prefetch_queue",
            "backup_queue",
        )
        return any(getattr(self.controller, name).qsize() for name in queues)

    def sessions_hold_kv(self) -> bool:
        """Whether a streaming session keeps device memory across turns."""
        return bool(self.tree.session.any_holding_kv())

    @property
    def hybrid(self) -> bool:
        """Whether there are pools beside the KV pool."""
        return len(self.tree.tree_components) > 1

    def requests(self) -> Iterator[Any]:
        """Every request that is queued, running, or between the two."""
        scheduler = self.scheduler
        yield from scheduler.waiting_queue
        yield from scheduler.grammar_manager.grammar_queue
        for batch in (scheduler.running_batch, scheduler.last_batch, scheduler.cur_batch_for_debug):
            if batch is not None:
                yield from batch.reqs
        if scheduler.chunked_req is not None:
            yield scheduler.chunked_req

    @property
    def parked_count(self) -> int:
        """How many known hits wait for room."""
        return 0 if self.pipeline is None else len(self.pipeline.pending_hit_allocs)

    def believed_pages(self) -> int:
        """Pages believed stored, over all pools; 0 in cache mode."""
        beliefs = self.tree.storage_existence_cache
        pools = getattr(beliefs, "_pools", None)
        return len(beliefs._entries) if pools is None else sum(len(pool._entries) for pool in pools.values())

    @property
    def pipeline_ranks(self) -> int:
        """Ranks of pipeline parallelism."""
        return int(getattr(self.tree, "pp_size", 1))

    @property
    def ranks(self) -> int:
        """Ranks of tensor parallelism, which must all decide alike."""
        group = getattr(self.tree, "tp_group", None)
        return int(group.size() if group is not None else 1)

    # ---- the engine

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
            members["parked"] = bool(parked) and any(one is operation for one in parked)
        return members

    def header(self, version: str) -> dict[str, object]:
        """The members of a log's first line that describe the engine."""
        scheduler, tree = self.scheduler, self.tree
        rank = getattr(tree, "tp_rank", None)
        group = getattr(tree, "tp_group", None)
        profile, departures = releases.profile(version)
        members: dict[str, object] = {
            "source": "sglang",
            "version": version,
            "profile": profile,
            "constants": {"interval": self.interval, "max_attempts": self.max_attempts, **departures},
            "mode": "buffer_only" if self.buffer_mode else "cache",
            "page_size": int(tree.page_size),
            "threshold_tokens": int(tree.prefetch_threshold),
            "pool_tokens": int(scheduler.token_to_kv_pool_allocator.size),
            "host_tokens": int(self.controller.mem_pool_host.size),
            "rank": int(group.rank() if rank is None and group is not None else rank or 0),
            "ranks": self.ranks,
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
