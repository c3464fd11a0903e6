"""One real scheduler behind gates, made to look like new for each world."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hicache_fsm.rules import anchor_cap

from ..harness.gates import AckGate, AdmissionGate, DecodeGate, FeedQueue, Rest, feed_queues
from ..harness.pacing import FEEDS, SettleError
from ..harness.stepped import SteppedScheduler
from ..settings import EngineSettings, Mode
from ..view import EngineView, operation_key, rid_of
from .storage import Call, GatedStorage, Verdict
from .world import PAGE, Pages, PlainWorld

SIZES = (96, 160, 64)
"""Pages of the built device pool, host pool and context; a world takes part of each."""
SPARE = "spare"
QUESTIONS, READS, WRITES = "prefetch_queue", "prefetch_buffer", "backup_queue"
"""The queues of what storage is asked for; each is served by one thread."""
THREAD = {QUESTIONS: "prefetch_thread", READS: "prefetch_io_aux_thread", WRITES: "backup_thread"}


class DirtyError(RuntimeError):
    """The engine does not look like new; the message says what is left."""


def _at_once(timeout: float | None = None) -> None:
    """Waits for no thread. Raises ``SettleError`` where upstream would wait without a limit."""
    if timeout is None:
        raise SettleError("upstream waits without a limit for a thread that storage holds")


def extra_config(threshold_tokens: int) -> str:
    """The storage part of SGLang's configuration, as JSON."""
    return json.dumps(
        {
            "backend_name": "gated",
            "module_path": f"{__package__}.storage",
            "class_name": GatedStorage.__name__,
            "prefetch_threshold": threshold_tokens,
            "prefetch_timeout_base": 1e9,
            "prefetch_timeout_per_ki_token": 0,
        }
    )


class GatedEngine:
    """A stepped scheduler, its gates, and the world it is in. One a process."""

    def __init__(self, version: str, mode: Mode, folder: Path, sizes: tuple[int, int, int] = SIZES) -> None:
        """Builds the scheduler; raises what SGLang raises. ``folder`` takes the model."""
        from sglang.srt.managers import cache_controller, schedule_policy

        pool, host, context = sizes
        self._gate = threading.Event()
        self._gate.set()
        cache_controller.Queue = feed_queues(self._gate)
        # one page a storage call, so that a sequence can let pages arrive one by one
        cache_controller.STORAGE_BATCH_SIZE = 1
        settings = EngineSettings(
            version=version,
            mode=mode,
            page_size=PAGE,
            pool_tokens=pool * PAGE,
            host_ratio=host / pool,
            context_tokens=context * PAGE,
            chunk_tokens=4096,
            max_running=16,
            latency=None,
        )
        overrides = {
            "hicache_storage_backend": "dynamic",
            "hicache_storage_backend_extra_config": extra_config(PAGE),
        }
        self.version = version
        self.mode = mode
        self.stepped = SteppedScheduler(settings, folder, plugins=False, overrides=overrides)
        self.scheduler: Any = self.stepped.scheduler
        self.tree: Any = self.scheduler.tree_cache
        self.controller: Any = self.tree.cache_controller
        self.pipeline: Any = getattr(self.tree, "buffer_pipeline", None)
        self.view = EngineView(self.scheduler)
        self.acks = AckGate(self.tree)
        self.admission = AdmissionGate(self.tree, schedule_policy.PrefillAdder)
        DecodeGate(self.stepped)
        self.rest = Rest(self.controller, self._gate)
        self.stuck = False
        """Storage never lets go of a call that it holds."""
        self.pages = Pages()
        self.asked: dict[str, list[Any]] = {}
        """Operations that asked storage for each id, over all its attempts."""
        self.written: list[Any] = []
        """Operations that put a write to storage, oldest first."""
        self._watch()
        # what the import left is long-lived, and SGLang's flush collects garbage each time
        gc.collect()
        gc.freeze()
        self.rest.settle()

    # ---- threads and storage

    @property
    def storage(self) -> GatedStorage | None:
        """The attached backend."""
        backend: GatedStorage | None = self.controller.storage_backend
        return backend

    def thread(self, name: str) -> int:
        """The id of an I/O thread of the controller."""
        ident: int = getattr(self.controller, name).ident
        return ident

    def feed(self, name: str) -> FeedQueue:
        """One of the queues that an I/O thread takes from."""
        queue: FeedQueue = getattr(self.controller, name)
        return queue

    def _watch(self) -> None:
        # upstream's own queue of progress: nothing to choose there
        self.feed("prefetch_sync_queue").choosy = False
        for name in (QUESTIONS, READS, WRITES):
            self.feed(name).choosy = True
        self.feed("prefetch_queue").on_put = self._note_question
        self.feed("backup_queue").on_put = self.written.append

    def _note_question(self, operation: Any) -> None:
        self.asked.setdefault(rid_of(operation_key(operation)), []).append(operation)

    @contextmanager
    def threads_ending(self) -> Iterator[None]:
        """Around what joins the I/O threads: storage lets go of every call, and nobody sleeps out a second."""
        controller, storage = self.controller, self.storage
        if storage is not None and not self.stuck:
            storage.release_all(and_stay_open=True)
        self._gate.set()
        controller.storage_stop_event.set()
        for name in FEEDS:
            queue = getattr(controller, name, None)
            if queue is not None:
                queue.let_all()
                queue.put(None)
        for name in THREAD.values() if self.stuck else ():
            # upstream gives up after ten seconds: nobody waits them out
            getattr(controller, name).join = _at_once
        yield
        if self.storage is not None:
            self.storage.release_all(and_stay_open=False)
            self._watch()
        self.rest.settle()

    def serving(self, feed: str) -> Any:
        """The operation that the thread of a queue is held for inside storage, or None."""
        storage = self.storage
        if storage is None or not storage.holds(self.thread(THREAD[feed])):
            return None
        return self.feed(feed).taken

    def call(self, feed: str) -> Call:
        """The call that the thread of a queue is held in; raises ``LookupError`` if it is not."""
        call = None if self.storage is None else self.storage.call(self.thread(THREAD[feed]))
        if call is None:
            raise LookupError(f"no thread serves {feed} now")
        return call

    def waiting(self, feed: str) -> list[Any]:
        """Operations in a queue, oldest first."""
        queue = getattr(self.controller, feed)
        if queue is None:
            return []
        with queue.mutex:
            return [one for one in queue.queue if one is not None]

    def serve(self, feed: str, operation: Any) -> None:
        """Let the thread take an operation as far as into storage, unless it ends without asking it anything."""
        self.feed(feed).choose(operation)
        self.rest.settle()

    def tell(self, feed: str, verdict: Verdict) -> None:
        """Answer the call that the thread of a queue is held in."""
        assert self.storage is not None
        self.storage.release(self.thread(THREAD[feed]), verdict)
        self.rest.settle()

    # ---- steps

    def drain(self) -> None:
        """What a pass does first, alone: the scheduler takes note of all that has completed. Not while it is paused."""
        if self.scheduler._engine_paused:
            return
        self.tree.check_hicache_events()
        self.rest.settle()

    def one_pass(self, seen: Iterable[str] | None = (), admitted: Iterable[str] | None = ()) -> list[str]:
        """One scheduling pass; the ids admitted on it. None stands for everybody."""
        if self.scheduler._engine_paused:
            self.stepped.passes += 1
            return []
        self.admission.open(seen, admitted)
        try:
            return self.stepped.step()
        finally:
            self.admission.close()
            self.rest.settle()

    def queued(self, rid: str) -> Any:
        """The waiting request of an id, or None."""
        return next((one for one in self.scheduler.waiting_queue if one.rid == rid), None)

    def running(self) -> list[Any]:
        """Requests that hold a slot."""
        found = [one for one in self.scheduler.running_batch.reqs if not one.finished()]
        last = self.scheduler.last_batch
        if last is not None and last is not self.scheduler.running_batch:
            found += [one for one in last.reqs if not one.finished() and one not in found]
        return found

    # ---- worlds

    def begin(self, world: PlainWorld) -> None:
        """A new world. Raises ``DirtyError`` when the engine cannot be made to look like new."""
        self.stuck = False
        self._forget()
        self._resize(world)
        with self.threads_ending():
            self.scheduler.last_batch = None
            self.scheduler.cur_batch_for_debug = None
            self.tree.reset()
            self.scheduler.req_to_token_pool.clear()
            self.scheduler.token_to_kv_pool_allocator.clear()
        self._believe_nothing()
        self.asked.clear()
        self.written.clear()
        self.acks.reset()
        self.admission.close()
        self.stepped.passes = 0
        self.stepped.outputs.clear()
        self.stepped._running.clear()
        self.pages = Pages()
        for prompt in world.prompts.values():
            self.pages.learn(prompt)
        left = self.audit()
        if left:
            raise DirtyError(f"left from the world before: {left}")
        self.stuck = world.stuck

    def _forget(self) -> None:
        """Whoever is queued or running is gone; what they hold goes with the reset of the pools."""
        scheduler = self.scheduler
        scheduler.waiting_queue = []
        scheduler.running_batch.reqs = []
        scheduler.running_batch = type(scheduler.running_batch)(reqs=[], batch_is_full=False)
        scheduler.chunked_req = None
        scheduler._engine_paused = False
        scheduler.max_queued_requests = None
        scheduler.enable_priority_scheduling = scheduler.enable_priority_preemption = False
        scheduler.policy.enable_priority_scheduling = False
        if self.storage is None:
            self.attach()
        assert self.storage is not None
        self.storage.clear()

    def _believe_nothing(self) -> None:
        beliefs = getattr(self.tree, "storage_existence_cache", None)
        if beliefs is not None:
            beliefs.clear()

    def attach(self) -> tuple[bool, str]:
        """Attach an empty backend, by SGLang's own way for a running server."""
        from sglang.srt.managers.io_struct import AttachHiCacheStorageReqInput

        threshold = int(getattr(self.tree, "prefetch_threshold", PAGE))
        answer = self.scheduler.attach_hicache_storage_wrapped(
            AttachHiCacheStorageReqInput(
                hicache_storage_backend="dynamic",
                hicache_storage_backend_extra_config_json=extra_config(threshold),
            )
        )
        if self.storage is not None:
            self._watch()
        self.rest.settle()
        return bool(answer.success), str(answer.message)

    def detach(self) -> tuple[bool, str]:
        """Detach the backend, by SGLang's own way for a running server."""
        from sglang.srt.managers.io_struct import DetachHiCacheStorageReqInput

        if not self.scheduler.is_fully_idle():
            answer = self.scheduler.detach_hicache_storage_wrapped(DetachHiCacheStorageReqInput())
            return bool(answer.success), str(answer.message)
        with self.threads_ending():
            answer = self.scheduler.detach_hicache_storage_wrapped(DetachHiCacheStorageReqInput())
        return bool(answer.success), str(answer.message)

    def _resize(self, world: PlainWorld) -> None:
        """Give the pools and limits the world's sizes: the fields that SGLang's own constructors compute."""
        from sglang.srt.runtime_context import get_context

        scheduler, controller = self.scheduler, self.controller
        allocator = scheduler.token_to_kv_pool_allocator
        pool, context, host = world.pool_tokens, world.context_tokens, world.host_tokens
        allocator.size, allocator.num_pages = pool, pool // PAGE
        allocator.get_kvcache().size = pool
        for one in (scheduler, scheduler.tp_worker.model_runner, *vars(scheduler).values()):
            if "max_total_num_tokens" in getattr(one, "__dict__", ()):
                vars(one)["max_total_num_tokens"] = pool
            elif "max_total_num_tokens" in getattr(type(one), "__slots__", ()):
                object.__setattr__(one, "max_total_num_tokens", pool)
        scheduler.model_config.context_len = context
        scheduler.max_req_len = min(context, pool) - 1
        scheduler.max_req_input_len = scheduler.max_req_len - 5
        for one in self._host_pools():
            for name, value in (("size", host), ("logical_size", host), ("page_num", host // PAGE)):
                if name in vars(one):
                    setattr(one, name, value)
        share = 0.9 if self.pipeline is not None else 0.5
        controller.prefetch_capacity_limit = int(share * host)
        self.tree.prefetch_threshold = controller.prefetch_threshold = max(world.threshold, 1) * PAGE
        self.tree.prefetch_stop_policy = world.policy
        self.tree.load_back_threshold = 1
        if self.pipeline is not None:
            self.pipeline.anchor_lock_cap_tokens = self._pin_cap(world)
            self.pipeline.write_backlog_cap = 2 * pool
        get_context().override(
            "hicache_fsm.world",
            hicache_storage_prefetch_retry_poll_interval=world.interval,
            hicache_storage_prefetch_retry_max_attempts=world.max_attempts,
        )

    @staticmethod
    def _pin_cap(world: PlainWorld) -> int:
        """The cap in tokens, as upstream's pipeline computes it or as this project's machine does."""
        pool, context = world.pool_tokens, world.context_tokens
        if world.machine_pins:
            return anchor_cap(world.fraction, pool, context, PAGE)
        return max(0, min(int(world.fraction * pool), pool - (context if world.context else 0)))

    def audit(self) -> dict[str, int]:
        """What an engine that looks like new must not hold, by name; empty when it holds nothing."""
        scheduler, tree, controller, pipeline = self.scheduler, self.tree, self.controller, self.pipeline
        allocator = scheduler.token_to_kv_pool_allocator
        found = {
            "waiting": len(scheduler.waiting_queue),
            "running": len(scheduler.running_batch.reqs),
            "device pages out": (allocator.size - allocator.available_size()) // PAGE,
            "host tokens out": self.host_size - self.host_free,
            "rows out": scheduler.req_to_token_pool.size - scheduler.req_to_token_pool.available_size(),
            "entries": len(tree.ongoing_prefetch),
            "load-backs": len(tree.ongoing_load_back),
            "write-throughs": len(tree.ongoing_write_through),
            "backups": len(tree.ongoing_backup),
            "loaded": len(tree.prefetch_loaded_tokens_by_reqid),
            "markers": self.view.markers(),
            "occupied": self.view.occupied_tokens,
            "waits": len(getattr(tree, "_storage_prefetch_wait", ())),
            "held calls": sum(self.serving(feed) is not None for feed in THREAD),
            "queued": sum(
                getattr(controller, name).qsize()
                for name in (*FEEDS, "prefetch_hit_queue", "ack_prefetch_queue", "ack_backup_queue")
            ),
            "copies": len(controller.ack_load_queue) + len(controller.ack_write_queue),
        }
        if pipeline is not None:
            found |= {
                "holds": len(pipeline.staged_prefetches),
                "parked": len(pipeline.pending_hit_allocs),
                "pins": len(pipeline.anchor_locks),
                "pinned": pipeline.anchor_locked_tokens_,
                "contexts": len(pipeline._prefetch_prefix_ctx),
                "fillings": len(pipeline.ongoing_buffer_load_back),
                "writes": len(pipeline.pending_write_queue),
                "staged writes": pipeline.write_staged_tokens_,
            }
        return {name: count for name, count in found.items() if count}

    def _host_pools(self) -> list[Any]:
        """The group of host pools and the one that holds KV."""
        group = self.controller.mem_pool_host
        anchor = getattr(group, "anchor_entry", None)
        return [group] if anchor is None else [group, anchor.host_pool]

    @property
    def host_size(self) -> int:
        """Tokens of the host pool."""
        return int(self._host_pools()[-1].size)

    @property
    def host_free(self) -> int:
        """Free tokens of the host pool."""
        return int(self._host_pools()[-1].available_size())

    @property
    def host_returning(self) -> int:
        """Tokens of host pages that nobody owns any more, until the next drain hands them back to the pool."""
        return sum(len(one) for one in self.waiting("host_mem_release_queue"))
