"""The observers that tell events, one a patched method, and the table that says where each goes.

They are there only where someone listens. An observer is a generator: what it does before its ``yield`` runs
before the original, the rest after it, with the original's result. What most passes call is observed by plain
methods instead. Names follow upstream's methods; the paths are in ``targets``, ``pairs`` and ``before``.
"""

from __future__ import annotations

from typing import Any

from . import releases
from .cachehooks import CacheHooks, Observer
from .guard import After, Before, Hook, Touch, When
from .recorder import Attempt, Recorder
from .view import key_of, rid_of
from .watch import PIPELINE, RETRIES, SCHEDULER, TREE, Watch


class Hooks(CacheHooks):
    """All observers of one engine: those of ``CacheHooks`` and, here, those of the scheduler and its questions."""

    def __init__(self, recorder: Recorder, watch: Watch, version: str) -> None:
        super().__init__(recorder, watch, version)
        self._cause = "issue"
        """Why the next question is asked: ``issue``, ``sweep`` or ``lose_match``."""
        self._sweeping = False
        self._requeue = "requeued"
        self._entering: Attempt | None = None
        """An attempt whose ``enqueue`` is not written yet."""
        self._again: str | None = None
        self._cut: int | None = None
        """0.5.19: the question that the scan has just cut; told once the scan has popped its marker, too."""
        self._asked: tuple[int | None, str | None, int] | None = None
        """Operation number or reason, and tokens, of the question just put or declined."""

    def before(self) -> dict[str, Touch]:
        """What runs before a method and needs no more, by the method's full path."""
        return {
            f"{SCHEDULER}.get_next_batch_to_run": self.pass_begins,
            f"{SCHEDULER}.on_idle": self.on_idle,
        }

    def pairs(self) -> dict[str, tuple[Before, After]]:
        """Observers in two halves, of what most passes call, by the full path of what they observe."""
        return {
            f"{SCHEDULER}._get_new_batch_prefill_raw": (self.admission_begins, self.admission_ends),
            f"{SCHEDULER}.process_batch_result": (self.result_comes, self.result_processed),
            f"{TREE}.check_prefetch_progress": (self.prefetch_polled, self.prefetch_judged),
            self._sweep: (self.sweep_begins, self.sweep_ends),
        }

    @property
    def _sweep(self) -> str:
        if self._version == "0.5.19":
            return f"{SCHEDULER}._retry_missed_storage_prefetches"
        return f"{SCHEDULER}._process_storage_prefetch_retries"

    def targets(self) -> dict[str, Hook]:
        """The observers that are generators, for the installed version."""
        common: dict[str, Hook] = {
            f"{SCHEDULER}._add_request_to_queue": self.add_request_to_queue,
            f"{TREE}.release_aborted_request": self.release_aborted_request,
            f"{TREE}._drain_storage_control_queues_impl": self.drain_queues,
            f"{TREE}.reset": self.reset,
            f"{TREE}.detach_storage_backend": self.detach,
            f"{PIPELINE}.finish_storage_write_ack": self.finish_storage_write,
            f"{SCHEDULER}._prefetch_kvcache": self.prefetch_kvcache,
            f"{SCHEDULER}.pause_generation": self.pause_generation,
            f"{TREE}.prefetch_from_storage": self.prefetch_from_storage,
            f"{TREE}._invalidate_absent_from_hit_query": self.heal_from_query,
            f"{TREE}._check_hybrid_prefetch_result": self.check_hybrid_result,
            f"{TREE}._evict": self.evict,
            f"{TREE}.clear_storage_backend": self.clear,
            f"{PIPELINE}.try_lock_anchor": self.try_lock_anchor,
            f"{PIPELINE}.release_anchor_lock": self.release_anchor_lock,
            f"{PIPELINE}.release_staged_hold": self.release_staged_hold,
            f"{PIPELINE}.{releases.write_launch(self._version)}": self.launch_write,
        }
        if self._version == "0.5.19":
            return common | {f"{TREE}.pop_prefetch_loaded_tokens": self.pop_loaded}
        return common | {
            f"{SCHEDULER}._retry_storage_prefetch": self.retry_prefetch,
            f"{SCHEDULER}._prefetch_after_device_hit_loss": self.device_hit_loss,
            f"{RETRIES}.pop_ready": self.pop_ready,
            f"{PIPELINE}._refetch_staged": self.refetch_staged,
        }

    def filters(self) -> dict[str, When]:
        """Which calls matter, for observers that most passes call in vain; the others matter always."""
        drains: dict[str, When] = {f"{TREE}._drain_storage_control_queues_impl": _answers}
        return drains if self._version == "0.5.19" else drains | {f"{RETRIES}.pop_ready": _due}

    # ---- scheduler

    def pass_begins(self, *_: Any, **__: Any) -> None:
        """Whatever became of the last pass."""
        self._requeue = "requeued"
        self._recorder.begin_pass()

    def on_idle(self, *_: Any, **__: Any) -> None:
        """Nothing to run: an engine that sleeps on idle may begin no pass for long."""
        self._recorder.flush()

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
        attempt = self._entering = recorder.begin_attempt(request, self._watch.attempt_of(request.rid))
        self._again = again
        yield
        self._announce()
        if attempt.queued and self._watch.turned_away(scheduler, request):
            self._abort(attempt)

    def _announce(self) -> None:
        """Write the ``enqueue`` that is due: late, as upstream resets a retracted request's budget first."""
        attempt, self._entering = self._entering, None
        if attempt is not None:
            request = attempt.request
            tokens = len(request.origin_input_ids)
            self._recorder.prefetch("enqueue", request.rid, tokens=tokens, again=self._again)

    def pause_generation(self, *_: Any, **__: Any) -> Observer:
        """What is queued again in here was paused."""
        self._requeue = "paused"
        try:
            yield
        finally:
            self._requeue = "requeued"

    def admission_begins(self, scheduler: Any, *_: Any, **__: Any) -> Any:
        """The scan of the queue, if there is one; what is queued again in here was preempted."""
        if not scheduler.waiting_queue:
            return None
        self._requeue = "preempted"
        return scheduler

    def admission_ends(self, _scheduler: Any, planned: Any) -> None:
        """Whoever is in the new batch was admitted."""
        self._requeue = "requeued"
        batch = planned[0]
        for request in () if batch is None else batch.reqs:
            attempt = self._recorder.attempt(request.rid)
            if attempt is not None and attempt.queued:
                attempt.running = True
                self._leave(attempt, "admit", tokens=int(request.storage_hit_length))

    def result_comes(self, _scheduler: Any, batch: Any, *_: Any, **__: Any) -> list[Any]:
        """The requests of a batch that has run."""
        return list(batch.reqs)

    def result_processed(self, requests: list[Any], _result: Any) -> None:
        """Finished requests leave the batch."""
        for request in requests:
            if request.finished_reason is not None:
                attempt = self._recorder.attempt(request.rid)
                if attempt is not None and attempt.running:
                    self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        self._recorder.prefetch("finish", attempt.request.rid)
        self._recorder.retire(attempt.request.rid)

    def _abort(self, attempt: Attempt) -> None:
        self._leave(attempt, "abort", why=self._watch.reason(attempt.request.rid))
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

    def sweep_begins(self, scheduler: Any, *_: Any, **__: Any) -> tuple[Any, tuple[str, ...]] | None:
        """Questions asked in here are re-issues of the sweep."""
        if not scheduler.waiting_queue:
            return None
        self._sweeping, self._cause = True, "sweep"
        if self._version != "0.5.19":
            return scheduler, ()
        return scheduler, tuple(scheduler.tree_cache._storage_prefetch_missed_rids)

    def sweep_ends(self, noted: tuple[Any, tuple[str, ...]], _result: Any) -> None:
        """0.5.19: markers that it consumed are told when it is over, as counting starts only then."""
        self._sweeping, self._cause = False, "issue"
        scheduler, missed = noted
        for rid in sorted(missed):
            if rid not in scheduler.tree_cache._storage_prefetch_missed_rids:
                self._recorder.prefetch("sweep", rid, facts={"head_exempt": False})

    def pop_ready(
        self, retries: Any, waiting_queue: Any, _interval: int = 0, max_attempts: int = 0, **__: Any
    ) -> Observer:
        """0.5.20+: one sweep; markers that it consumes or drops without asking again."""
        pending, step, head = retries._pending, retries._step + 1, waiting_queue[0].rid
        before = [
            (rid, retry.due_step, retry.immediate)
            for rid, retry in pending.items()
            if rid == head or retry.due_step is None or retry.due_step <= step
        ]
        ready = yield
        asked_again = {request.rid for request, _ in ready}
        told = []
        for rid, due_step, immediate in before:
            retry = pending.get(rid)
            if rid in asked_again or (retry is not None and retry.due_step == due_step):
                continue
            # the head rule spares an immediate marker: that one has no budget left
            told.append((rid, retry is None, rid == head and retry is None and not immediate))
        if len(told) > 1:
            places = {request.rid: place for place, request in enumerate(waiting_queue)}
            told = sorted((one for one in told if one[0] in places), key=lambda one: places[one[0]])
        for rid, dropped, at_head in told:
            # an interval of 0 drops paced markers with budget left
            if dropped and not at_head and self._spends(rid) >= max_attempts:
                self._spent_out(rid)
            self._recorder.prefetch("sweep", rid, facts={"head_exempt": at_head})

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

    def _spends(self, rid: str) -> int:
        attempt = self._recorder.attempt(rid)
        return 0 if attempt is None else int(attempt.request.storage_prefetch_retry_attempts)

    def _spent_out(self, rid: str) -> bool:
        """Note that the budget of an attempt is spent; whether that is news."""
        attempt = self._recorder.attempt(rid)
        news = attempt is not None and not attempt.spent_out
        if attempt is not None:
            attempt.spent_out = True
        return news

    def prefetch_polled(self, tree: Any, key: Any) -> tuple[Any, Any] | None:
        """The admission scan asks whether a prefetch is over, on every pass of every request in its reach."""
        entry = tree.ongoing_prefetch.get(key)
        return None if entry is None else (key, entry.operation)

    def prefetch_judged(self, polled: tuple[Any, Any], ready: bool) -> None:
        """The stop policy ends a wait: what is in flight goes on as an orphan."""
        key, operation = polled
        view = self._recorder.view
        if not ready or view is None:
            return
        expired = bool(getattr(operation, "deadline_expired", False))
        if operation.host_indices is None:
            number = self._recorder.orphan(operation)
            if self._version == "0.5.19":
                self._cut = number
                return
            self._recorder.prefetch("expire" if expired else "cut", rid_of(key), op=number)
            return
        hold = view.hold(key)
        usable = int(hold.num_tokens) if hold is not None else view.loaded_tokens(key)
        if usable or hold is not None:
            number = self._recorder.orphan(operation)
            self._recorder.prefetch("expire" if expired else "cut", rid_of(key), op=number, tokens=usable)
        else:
            number = self._recorder.end_operation(operation)
            self._recorder.prefetch("fail", rid_of(key), op=number, why="nothing_usable", tokens=0)

    def pop_loaded(self, _tree: Any, rid: str) -> Observer:
        """0.5.19: the scan is through with a request's prefetch, and drops the marker that a cut has just raised."""
        yield
        cut, self._cut = self._cut, None
        if cut is not None:
            self._recorder.prefetch("cut", rid, op=cut)

    def release_aborted_request(self, tree: Any, key: Any) -> Observer:
        """A queued request leaves without being admitted."""
        view = self._recorder.view
        self._recorder.orphan(None if view is None else view.live_operation(key))
        yield
        attempt = self._recorder.attempt(rid_of(key))
        if attempt is None or key_of(attempt.request) != key:
            return
        if attempt.queued:
            self._abort(attempt)
        elif attempt.running:
            self._end(attempt)


def _due(retries: Any, waiting_queue: Any, *_: Any, **__: Any) -> bool:
    """Whether a sweep changes any marker."""
    pending = retries._pending
    if not pending or not waiting_queue:
        return False
    if waiting_queue[0].rid in pending:
        return True
    step = retries._step + 1
    return any(retry.due_step is None or retry.due_step <= step for retry in pending.values())


def _answers(tree: Any, n_storage_hit: Any = None, n_ack_prefetch: Any = None, *_: Any, **__: Any) -> bool:
    """Whether a drain meets an operation of a request."""
    pipeline = getattr(tree, "buffer_pipeline", None)
    if n_storage_hit or n_ack_prefetch or (pipeline is not None and pipeline.pending_hit_allocs):
        return True
    controller = tree.cache_controller
    return (n_storage_hit is None and bool(controller.prefetch_hit_queue.queue)) or (
        n_ack_prefetch is None and bool(controller.ack_prefetch_queue.queue)
    )
