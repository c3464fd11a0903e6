"""The observers, one a patched method, and the table that says where each goes.

Every observer is a generator: what it does before its ``yield`` runs before the original, the rest after it,
with the original's result. Names follow upstream's methods; the path of each is in ``targets``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from .drain import Drain
from .recorder import Attempt, Hook, Recorder
from .view import rid_of

Observer = Generator[None, Any, None]
SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
TREE = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
PIPELINE = "sglang.srt.mem_cache.buffer_mode.pipeline.BufferModePipeline"
RETRIES = "sglang.srt.mem_cache.storage_prefetch.StoragePrefetchRetries"
NO_PIN = frozenset({"anchor_lost", "no_anchor", "unservable"})


class Hooks:
    """The observers of one recording, with the little context that passes between nested calls."""

    def __init__(self, recorder: Recorder, version: str) -> None:
        self._recorder = recorder
        self._version = version
        self._cause = "issue"
        """Why the next question is asked: ``issue``, ``sweep`` or ``lose_match``."""
        self._sweeping = False
        self._requeue = "requeued"
        self._abort_why = "client"
        self._entering: Attempt | None = None
        """An attempt whose ``enqueue`` is not written yet."""
        self._again: str | None = None
        self._consumed: list[str] = []
        """0.5.19: ids whose markers the running sweep has consumed."""
        self._asked: tuple[int | None, str | None, int] | None = None
        """Operation number or reason, and tokens, of the question just put or declined."""
        self._drain: Drain | None = None
        self._written: dict[int, int] = {}
        """Tokens stored by each write whose acknowledgement is being drained."""

    def targets(self) -> dict[str, Hook]:
        """Observers by the full path of what they observe, for the installed version."""
        common: dict[str, Hook] = {
            f"{SCHEDULER}.__init__": self.built,
            f"{SCHEDULER}.get_next_batch_to_run": self.one_pass,
            f"{SCHEDULER}._add_request_to_queue": self.add_request_to_queue,
            f"{SCHEDULER}._abort_on_queued_limit": self.abort_on_queued_limit,
            f"{SCHEDULER}._set_or_validate_priority": self.set_or_validate_priority,
            f"{SCHEDULER}._prefetch_kvcache": self.prefetch_kvcache,
            f"{SCHEDULER}._get_new_batch_prefill_raw": self.get_new_batch_prefill,
            f"{SCHEDULER}.process_batch_result": self.process_batch_result,
            f"{SCHEDULER}.pause_generation": self.pause_generation,
            f"{TREE}.prefetch_from_storage": self.prefetch_from_storage,
            f"{TREE}.check_prefetch_progress": self.check_prefetch_progress,
            f"{TREE}.release_aborted_request": self.release_aborted_request,
            f"{TREE}._drain_storage_control_queues_impl": self.drain_queues,
            f"{TREE}._invalidate_absent_from_hit_query": self.heal_from_query,
            f"{TREE}._check_hybrid_prefetch_result": self.check_hybrid_result,
            f"{TREE}._evict": self.evict,
            f"{TREE}.reset": self.reset,
            f"{TREE}.detach_storage_backend": self.detach,
            f"{TREE}.clear_storage_backend": self.clear,
            f"{PIPELINE}.try_lock_anchor": self.try_lock_anchor,
            f"{PIPELINE}.release_anchor_lock": self.release_anchor_lock,
            f"{PIPELINE}.release_staged_hold": self.release_staged_hold,
            f"{PIPELINE}.finish_storage_write_ack": self.finish_storage_write,
        }
        if self._version == "0.5.19":
            markers: dict[str, Hook] = {
                f"{SCHEDULER}._retry_missed_storage_prefetches": self.sweep,
                f"{TREE}.pop_storage_prefetch_miss": self.pop_miss,
                f"{PIPELINE}._launch_backup_intent": self.launch_write,
            }
            return common | markers
        retries: dict[str, Hook] = {
            f"{SCHEDULER}._process_storage_prefetch_retries": self.sweep,
            f"{SCHEDULER}._retry_storage_prefetch": self.retry_prefetch,
            f"{SCHEDULER}._prefetch_after_device_hit_loss": self.device_hit_loss,
            f"{RETRIES}.pop_ready": self.pop_ready,
            f"{PIPELINE}._refetch_staged": self.refetch_staged,
            f"{PIPELINE}._stage_backup_intent": self.launch_write,
        }
        return common | retries

    # ---- scheduler

    def built(self, scheduler: Any, *_: Any, **__: Any) -> Observer:
        """The log starts once the scheduler stands."""
        yield
        self._recorder.attach(scheduler, self._version)

    def one_pass(self, *_: Any, **__: Any) -> Observer:
        """A pass begins."""
        self._recorder.now += 1
        yield

    def add_request_to_queue(self, scheduler: Any, request: Any, is_retracted: bool = False) -> Observer:
        """A request enters the queue, or is turned away at its door."""
        recorder = self._recorder
        before = recorder.attempt(request.rid)
        again = None
        if before is not None:
            again = None if before.request is not request else "retracted" if is_retracted else self._requeue
            if before.running:
                recorder.prefetch("retract", request.rid)
                before.running = False
        attempt = self._entering = recorder.begin_attempt(request)
        self._again = again
        yield
        self._announce()
        turned_away = all(one is not request for one in reversed(scheduler.waiting_queue))
        if attempt.queued and turned_away and scheduler.disaggregation_mode.value == "null":
            self._abort(attempt)
        self._abort_why = "client"

    def _announce(self) -> None:
        """Write the ``enqueue`` that is due: late, as upstream resets a retracted request's budget first."""
        attempt, self._entering = self._entering, None
        if attempt is not None:
            request = attempt.request
            tokens = len(request.origin_input_ids)
            self._recorder.prefetch("enqueue", request.rid, tokens=tokens, again=self._again)

    def abort_on_queued_limit(self, *_: Any, **__: Any) -> Observer:
        """Whoever is aborted in here is aborted by the queue limit."""
        self._abort_why = "queue_limit"
        turned_away = yield
        self._abort_why = "queue_limit" if turned_away else "client"

    def set_or_validate_priority(self, *_: Any, **__: Any) -> Observer:
        """A newcomer whose priority is refused is aborted by its caller."""
        allowed = yield
        if not allowed:
            self._abort_why = "priority"

    def pause_generation(self, *_: Any, **__: Any) -> Observer:
        """What is queued again in here was paused."""
        self._requeue = "paused"
        try:
            yield
        finally:
            self._requeue = "requeued"

    def get_new_batch_prefill(self, *_: Any, **__: Any) -> Observer:
        """Admissions; what is queued again in here was preempted."""
        self._requeue = "preempted"
        try:
            planned = yield
        finally:
            self._requeue = "requeued"
        batch = planned[0]
        for request in () if batch is None else batch.reqs:
            attempt = self._recorder.attempt(request.rid)
            if attempt is not None and attempt.queued:
                attempt.running = True
                self._leave(attempt, "admit", tokens=int(request.storage_hit_length))

    def process_batch_result(self, _scheduler: Any, batch: Any, *_: Any, **__: Any) -> Observer:
        """Finished requests leave the batch."""
        requests = list(batch.reqs)
        yield
        for request in requests:
            attempt = self._recorder.attempt(request.rid)
            if attempt is not None and attempt.running and request.finished():
                self._end(request.rid)

    def _end(self, rid: str) -> None:
        self._recorder.prefetch("finish", rid)
        self._recorder.retire(rid)

    def _abort(self, attempt: Attempt) -> None:
        self._leave(attempt, "abort", why=self._abort_why)
        self._recorder.retire(attempt.request.rid)

    def _leave(self, attempt: Attempt, event: str, **members: object) -> None:
        if attempt is self._entering:
            self._announce()
        attempt.queued = False
        self._recorder.prefetch(event, attempt.request.rid, **members)

    # ---- questions

    def prefetch_kvcache(self, scheduler: Any, request: Any, *_: Any, **__: Any) -> Observer:
        """One question, put or declined, told by what made the scheduler ask."""
        self._announce()
        self._asked = None
        yield
        if self._asked is None:
            self._asked = (None, "unbacked" if scheduler.enable_hicache_storage else "storage_off", 0)
        op, why, tokens = self._asked
        facts = {"asks": op is not None}
        if self._cause == "sweep":
            facts["head_exempt"] = False
        self._recorder.prefetch(self._cause, request.rid, facts=facts, op=op, why=why, tokens=tokens)

    def prefetch_from_storage(
        self, tree: Any, key: Any, _anchor: Any, new_input_tokens: Any, *_: Any, **__: Any
    ) -> Observer:
        """Whether an operation came of the question, and if not, why not."""
        view = self._recorder.view
        if view is None:
            yield
            return
        before = view.live_operation(key)
        held = view.hold(key) is not None
        yield
        tokens = len(new_input_tokens) // tree.page_size * tree.page_size
        operation = view.live_operation(key)
        if operation is not None and operation is not before:
            self._asked = (
                self._recorder.begin_operation(operation),
                None,
                int(operation.stats_requested_tokens),
            )
            return
        self._asked = (None, self._why_declined(tree, key, tokens, before is not None or held), tokens)

    @staticmethod
    def _why_declined(tree: Any, key: Any, tokens: int, in_flight: bool) -> str:
        wait = getattr(tree, "_storage_prefetch_wait", {}).get(key)
        if wait is not None and wait.expired:
            return "expired"
        if tokens < tree.prefetch_threshold:
            return "too_short"
        if in_flight:
            return "in_flight"
        return "rate_limited" if tree.cache_controller.prefetch_rate_limited() else "aux_alloc"

    def sweep(self, *_: Any, **__: Any) -> Observer:
        """Questions asked in here are re-issues of the sweep."""
        self._sweeping, self._cause = True, "sweep"
        try:
            yield
        finally:
            self._sweeping, self._cause = False, "issue"
            consumed, self._consumed = self._consumed, []
        for rid in consumed:
            self._recorder.prefetch("sweep", rid, facts={"head_exempt": False})

    def pop_miss(self, _tree: Any, rid: str) -> Observer:
        """0.5.19: the sweep consumes a marker; told when the sweep is over, as counting starts only then."""
        found = yield
        if found:
            self._consumed.append(rid)

    def pop_ready(self, retries: Any, waiting_queue: Any, *_: Any, **__: Any) -> Observer:
        """0.5.20+: one sweep; markers that it consumes or drops without asking again."""
        before = {rid: retry.due_step for rid, retry in retries._pending.items()}
        head = waiting_queue[0].rid if before and waiting_queue else None
        ready = yield
        if not before:
            return
        asked_again = {request.rid for request, _ in ready}
        for request in waiting_queue:
            rid = request.rid
            if rid not in before or rid in asked_again:
                continue
            retry = retries._pending.get(rid)
            if retry is None or (before[rid] is None and retry.due_step is not None):
                dropped_at_head = rid == head and retry is None
                if retry is None and not dropped_at_head:
                    self._spent_out(rid)
                self._recorder.prefetch("sweep", rid, facts={"head_exempt": dropped_at_head})

    def retry_prefetch(self, *_: Any, **__: Any) -> Observer:
        """A re-issue outside the sweep is the admission-time question."""
        before, self._cause = self._cause, "sweep" if self._sweeping else "lose_match"
        try:
            yield
        finally:
            self._cause = before

    def device_hit_loss(self, _scheduler: Any, request: Any) -> Observer:
        """The device holds less than was matched and the budget is spent: admitted as it is."""
        before = request.storage_prefetch_last_match_len
        asked = yield
        if not asked and request.storage_prefetch_last_match_len != before and self._spent_out(request.rid):
            self._recorder.prefetch("lose_match", request.rid)

    def _spent_out(self, rid: str) -> bool:
        """Note that the budget of an attempt is spent; whether that is news."""
        attempt = self._recorder.attempt(rid)
        news = attempt is not None and not attempt.spent_out
        if attempt is not None:
            attempt.spent_out = True
        return news

    def check_prefetch_progress(self, tree: Any, key: Any) -> Observer:
        """The stop policy ends a wait: what is in flight goes on as an orphan."""
        view = self._recorder.view
        operation = None if view is None else view.live_operation(key)
        ready = yield
        if view is None or operation is None or not ready:
            return
        expired = bool(getattr(operation, "deadline_expired", False))
        if operation.host_indices is None:
            number = self._recorder.orphan(operation)
            self._recorder.prefetch("expire" if expired else "cut", rid_of(key), op=number)
            return
        hold = view.hold(key)
        usable = int(hold.num_tokens) if hold is not None else view.loaded_tokens(key)
        if usable:
            number = self._recorder.orphan(operation)
            self._recorder.prefetch("expire" if expired else "cut", rid_of(key), op=number, tokens=usable)
        else:
            number = self._recorder.end_operation(operation)
            self._recorder.prefetch("fail", rid_of(key), op=number, why="nothing_usable", tokens=0)

    def release_aborted_request(self, tree: Any, key: Any) -> Observer:
        """A queued request leaves without being admitted."""
        view = self._recorder.view
        self._recorder.orphan(None if view is None else view.live_operation(key))
        yield
        attempt = self._recorder.attempt(rid_of(key))
        if attempt is not None and attempt.queued:
            self._abort(attempt)
        elif attempt is not None and attempt.running:
            self._end(rid_of(key))

    # ---- queues

    def drain_queues(
        self,
        tree: Any,
        n_storage_hit: Any = None,
        n_ack_prefetch: Any = None,
        n_backup: Any = None,
        *_: Any,
        **__: Any,
    ) -> Observer:
        """Answers and acknowledgements reach the scheduler."""
        view, controller = self._recorder.view, tree.cache_controller
        if view is None:
            yield
            return
        backups = controller.ack_backup_queue
        with backups.mutex:
            self._written = {operation.id: int(operation.completed_tokens) for operation in backups.queue}
        quiet = not (
            controller.prefetch_hit_queue.qsize() or controller.ack_prefetch_queue.qsize() or view.parked()
        )
        self._drain = None if quiet else Drain(self._recorder, view, n_storage_hit, n_ack_prefetch)
        try:
            yield
        finally:
            drain, self._drain, self._written = self._drain, None, {}
        if drain is not None:
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
        before, self._abort_why = self._abort_why, "shrink"
        try:
            yield
        finally:
            self._abort_why = before
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
            pools = args[-1] if self._version != "0.5.19" else {"kv": intent.snapshot.hash_values}
            for pool, pages in pools.items():
                self._recorder.write("belief", "write", pool=str(pool), pages=len(pages))

    def finish_storage_write(self, pipeline: Any, operation_id: int) -> Observer:
        """A write is acknowledged; the engine believes it either way."""
        entry = pipeline.ongoing_backup.get(operation_id)
        yield
        if entry is None:
            return
        pools = getattr(entry, "keys_by_pool", None) or {"kv": entry.intent.snapshot.hash_values}
        page = pipeline._cache.page_size
        for pool, pages in pools.items():
            whole = str(pool) != "kv" or self._written.get(operation_id, 0) >= len(pages) * page
            self._recorder.write(
                "belief", "stored" if whole else "write_failed", pool=str(pool), pages=len(pages)
            )

    def heal_from_query(self, tree: Any, operation: Any) -> Observer:
        """An answer raises and lowers beliefs."""
        yield
        chain = operation.all_hash_values
        if (
            tree.host_memory_mode != "buffer_only"
            or chain is None
            or getattr(operation, "deadline_expired", False)
        ):
            return
        found = int(operation.storage_hit_count or 0) // tree.page_size
        if found and self._version != "0.5.19":
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
        """Storage is emptied."""
        yield
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
