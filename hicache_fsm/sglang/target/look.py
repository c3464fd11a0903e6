"""What the gated engine shows: SGLang's structures in the suite's words. Changes nothing but node boundaries."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..view import key_of, rid_of
from .engine import QUESTIONS, READS, WRITES, GatedEngine
from .world import PAGE, PlainWorld


def _owner(filling: Any) -> str:
    """Whose hold is being copied: a handle, or an id where there are no handles (0.5.19)."""
    return rid_of(getattr(filling, "request", None) or filling.req_id)


class Looker:
    """The observer of one world; remembers what the engine does not: attempts, and what was asked before."""

    def __init__(self, engine: GatedEngine, world: PlainWorld) -> None:
        self._engine = engine
        self._world = world
        self._attempts: dict[str, int] = {}
        self._asked_before: dict[str, int] = {}
        self._loads: dict[int, frozenset[str]] = {}
        self._mark: dict[str, dict[str, Any]] = {}
        self.dropped: set[str] = set()
        """Pages that storage lost by itself."""
        self.hashes: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.learn()

    def learn(self) -> None:
        """Hash the pages that have names by now."""
        from sglang.srt.mem_cache.utils import get_hash_str

        pages = self._engine.pages
        for page, path in pages.paths.items():
            if page not in self.hashes:
                before = self.hashes[path[-2]] if len(path) > 1 else None
                key = get_hash_str(pages.tokens([page]), before)
                self.hashes[page] = key
                self._names[key] = page

    # ---- since the event before

    def mark(self) -> None:
        """An event begins."""
        self._mark = {rid: self._moment(rid) for rid in self._world.prompts}

    def _moment(self, rid: str) -> dict[str, Any]:
        shown = self.request(rid)
        return shown | {"asked": self.asked(rid), "filling": bool(self.loads(rid))}

    def asked_since_mark(self, rid: str) -> bool:
        """Whether a question of a request went out."""
        return self.asked(rid) > int(self._mark[rid]["asked"])

    def consumed_since_mark(self, rid: str) -> bool:
        """Whether a hold, or loaded host pages, went to the device."""
        return bool(self.loads(rid)) and not self._mark[rid]["filling"]

    def lost_since_mark(self, rid: str) -> bool:
        """Whether a hold or a known hit is gone although the request still waits."""
        then, now = self._mark[rid], self.request(rid)
        if self._engine.queued(rid) is None or then["attempt"] != now["attempt"]:
            return False
        gone = (then["hold"] and not now["hold"]) or (then["question"] and not now["question"])
        return bool(gone and now["marker"]) or (now["spent"] > then["spent"] and self.asked_since_mark(rid))

    # ---- what the cache decides by itself

    def told_issue(self, rid: str) -> bool:
        """Whether the event before made the first question of an attempt go out."""
        return self.asked_since_mark(rid) and self.asked_of_attempt(rid) == 1

    def told_reissue(self, rid: str) -> bool:
        """Whether the event before made a further question go out."""
        return self.asked_since_mark(rid) and self.asked_of_attempt(rid) > 1

    def told_park(self, rid: str) -> bool:
        """Whether a hit waits for room."""
        return self.state(rid) == "parked"

    def told_stage(self, rid: str) -> bool:
        """Whether pages are ready for admission."""
        return self.state(rid) == "loaded"

    def told_consume(self, rid: str) -> bool:
        """Whether the event before sent a hold to the device."""
        return self.consumed_since_mark(rid)

    def told_lose(self, rid: str) -> bool:
        """Whether the event before cost a waiting request its base."""
        return self.lost_since_mark(rid)

    def told_pin(self, rid: str) -> bool:
        """Whether its base is pinned."""
        return bool(self.request(rid)["pinned"])

    def told_unpin(self, rid: str) -> bool:
        """Whether its base is not pinned."""
        return not self.told_pin(rid)

    # ---- requests

    def begin_attempt(self, rid: str) -> None:
        """A request enters the queue, again or for the first time."""
        self._attempts[rid] = self._attempts.get(rid, -1) + 1
        self._asked_before[rid] = self.asked(rid)

    def asked(self, rid: str) -> int:
        """Questions of an id, over all its attempts."""
        return len(self._engine.asked.get(rid, ()))

    def asked_of_attempt(self, rid: str) -> int:
        """Questions of the latest attempt."""
        return self.asked(rid) - self._asked_before.get(rid, 0)

    def key(self, rid: str) -> Any:
        """What the cache files an id under, or None while it is unknown."""
        engine = self._engine
        request = engine.queued(rid) or next((one for one in engine.running() if one.rid == rid), None)
        if request is not None:
            return key_of(request)
        return next((key for key in self._keys() if rid_of(key) == rid), None)

    def _keys(self) -> Iterator[Any]:
        engine = self._engine
        yield from engine.tree.ongoing_prefetch
        if engine.pipeline is not None:
            yield from engine.pipeline.staged_prefetches
            yield from engine.pipeline.anchor_locks

    def live(self, rid: str) -> Any:
        """The operation registered for an id, or None."""
        key = self.key(rid)
        return None if key is None else self._engine.view.live_operation(key)

    def waits(self, rid: str) -> bool:
        """Whether a live operation keeps an id waiting."""
        return self.live(rid) is not None

    def state(self, rid: str) -> str:
        """A state of spec/prefetch.toml, or running, finished, aborted, absent."""
        return str(self.request(rid)["state"])

    def request(self, rid: str) -> dict[str, Any]:
        """One request; amounts are pages."""
        engine, view = self._engine, self._engine.view
        queued = engine.queued(rid)
        runs = next((one for one in engine.running() if one.rid == rid), None)
        request = queued if queued is not None else runs
        key = self.key(rid)
        shown: dict[str, Any] = {
            "state": self._gone(rid),
            "attempt": self._attempts.get(rid, 0),
            "marker": self._armed(rid, request, queued is not None),
            "spent": 0 if request is None else int(request.storage_prefetch_retry_attempts),
            "question": False,
            "pages": 0,
            "hold": 0,
            "pinned": 0,
            "loaded": 0,
            "base": self._base(rid),
        }
        if key is None:
            return shown
        entry, hold = view.entry(key), view.hold(key)
        host = None if entry is None else entry.host_indices
        shown |= {
            "question": entry is not None,
            "pages": 0 if host is None else len(host) // PAGE,
            "hold": 0 if hold is None else int(hold.num_tokens) // PAGE,
            "pinned": (view.pin_tokens(key) or 0) // PAGE,
            "loaded": view.loaded_tokens(key) // PAGE,
        }
        if runs is not None:
            shown["state"] = "running"
        elif queued is not None:
            shown["state"] = self._waiting(queued, key, shown)
        return shown

    def _base(self, rid: str) -> int | None:
        """What the device held of a prompt when its last question went out; 0.5.19 does not keep it."""
        operations = self._engine.asked.get(rid)
        start = getattr(operations[-1], "storage_start", None) if operations else None
        return None if start is None or self._engine.version == "0.5.19" else int(start) // PAGE

    def _armed(self, rid: str, request: Any, queued: bool) -> bool:
        if request is not None:
            return self._engine.view.armed(request, queued) and not self._paced(request)
        return self._engine.view.marked(rid)

    def _gone(self, rid: str) -> str:
        output = self._engine.stepped.outputs.get(rid)
        if output is None or output.finish is None:
            return "absent"
        return "aborted" if output.finish == "abort" else "finished"

    def _waiting(self, request: Any, key: Any, shown: dict[str, Any]) -> str:
        view = self._engine.view
        if shown["question"]:
            operation = view.live_operation(key)
            if any(one is operation for one in view.parked()):
                return "parked"
            if shown["pages"]:
                return "transferring"
            return "retrying" if shown["spent"] else "probing"
        if shown["hold"] or shown["loaded"]:
            return "loaded"
        if shown["marker"]:
            return "missed"
        if view.armed(request, True):
            return "pending"
        wait = getattr(self._engine.tree, "_storage_prefetch_wait", {}).get(key)
        if (wait is not None and wait.expired) or shown["spent"] >= view.max_attempts > 0:
            return "exhausted"
        return "queued"

    def _paced(self, request: Any) -> bool:
        """Whether passes are being counted for a marker."""
        retries = getattr(self._engine.tree, "storage_prefetch_retries", None)
        if retries is None:
            return bool(request.storage_prefetch_retry_pending)
        marker = retries._pending.get(request.rid)
        return marker is not None and marker.due_step is not None

    # ---- operations

    def arrived(self, operation: Any) -> int:
        """Pages of an operation that storage has handed over, acknowledged or not."""
        waiting = self._engine.waiting("ack_prefetch_queue")
        acked = [
            ack.completed_tokens for ack in waiting if ack.operation is operation and ack.completed_tokens
        ]
        return max(int(operation.completed_tokens), 0, *map(int, acked)) // PAGE

    def under_way(self) -> list[Any]:
        """Prefetch operations that still have something to say."""
        engine = self._engine
        if engine.storage is None:
            return []
        found = [engine.serving(QUESTIONS), engine.serving(READS)]
        for name in (QUESTIONS, "prefetch_hit_queue", READS):
            found += engine.waiting(name)
        for name in ("ack_prefetch_queue", "prefetch_sync_queue"):
            found += [ack.operation for ack in engine.waiting(name)]
        return list({id(one): one for one in found if one is not None}.values())

    def orphans(self) -> list[Any]:
        """Those of them that nobody waits for."""
        live = {id(entry.operation) for entry in self._engine.tree.ongoing_prefetch.values()}
        return [one for one in self.under_way() if id(one) not in live]

    def being_written(self) -> set[str]:
        """Hashes of pages on their way to storage: queued, copied, or held in a write."""
        engine = self._engine
        found: set[str] = set()
        for entry in engine.tree.ongoing_backup:
            found |= self._write_hashes(entry)
        if engine.pipeline is not None:
            for key in engine.pipeline.ongoing_backup:
                found |= self._write_hashes(key)
        return found

    def writes(self) -> list[Any]:
        """Write operations that storage has not answered, oldest first."""
        engine = self._engine
        serving = engine.serving(WRITES)
        return [*([] if serving is None else [serving]), *engine.waiting(WRITES)]

    def _write_hashes(self, operation_id: int) -> set[str]:
        match = next((one for one in self._engine.written if one.id == operation_id), None)
        return set() if match is None else set(match.hash_value)

    # ---- copies to the device

    @contextmanager
    def loads_of(self, admitted: Callable[[], list[str]]) -> Iterator[None]:
        """Around a pass: the copies that it queues belong to those whom it admits."""
        before = set(self._engine.tree.ongoing_load_back)
        yield
        new = set(self._engine.tree.ongoing_load_back) - before
        if new:
            owners = frozenset(admitted())
            self._loads.update(dict.fromkeys(new, owners))

    def loads(self, rid: str) -> list[int]:
        """The ids of the copies of a request that are not acknowledged."""
        engine = self._engine
        if engine.pipeline is not None:
            fillings = engine.pipeline.ongoing_buffer_load_back
            return [ack for ack, one in fillings.items() if _owner(one) == rid]
        return [ack for ack in engine.tree.ongoing_load_back if rid in self._loads.get(ack, ())]

    # ---- the tree, storage and pools

    def radix_key(self, pages: Iterable[str]) -> Any:
        """The tree's key of a path."""
        from sglang.srt.mem_cache.radix_cache import RadixKey

        return RadixKey(array("q", self._engine.pages.tokens(pages)))

    def node(self, page: str) -> Any:
        """The device node that ends with a page, or None if the device does not hold the page and all before it.

        A look makes the page the end of a node, as every match does.
        """
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams

        path = self._engine.pages.paths.get(page)
        if path is None:
            return None
        match = self._engine.tree.match_prefix(MatchPrefixParams(key=self.radix_key(path)))
        length = getattr(match, "device_prefix_len", None)
        if length is None:
            length = len(match.device_indices)
        return match.last_device_node if int(length) >= len(path) * PAGE else None

    def resident(self, page: str) -> bool:
        """Whether the device holds a page and all before it."""
        return self.node(page) is not None

    def believed(self) -> list[str]:
        """Pages that the cache takes for stored."""
        beliefs = getattr(self._engine.tree, "storage_existence_cache", None)
        if beliefs is None:
            return []
        # one map of pools and keys before 0.5.22, a map for each pool since
        pool = getattr(beliefs, "pool", None)
        found = [key for _, key in beliefs._entries] if pool is None else list(pool("kv")._entries)
        return [self._names[key] for key in found if key in self._names]

    def stored(self) -> list[str]:
        """Pages that storage holds."""
        storage = self._engine.storage
        return [] if storage is None else [self._names[key] for key in storage.stored if key in self._names]

    def idle(self) -> bool:
        """Nothing queued, running, in flight or owed."""
        return bool(self._engine.scheduler.is_fully_idle()) and not self.under_way()

    def observe(self) -> dict[str, Any]:
        """Everything, as ``hicache_fsm.suite.protocol.Observed`` names it; amounts are pages."""
        engine, pipeline = self._engine, self._engine.pipeline
        return {
            "now": engine.stepped.passes,
            "requests": {rid: self.request(rid) for rid in self._world.prompts},
            "asked": {rid: self.asked(rid) for rid in self._world.prompts if self.asked(rid)},
            "pinned": engine.view.pinned_tokens // PAGE,
            "pin_cap": 0 if pipeline is None else int(pipeline.anchor_lock_cap_tokens) // PAGE,
            "occupied": engine.view.occupied_tokens // PAGE,
            "host_free": (engine.host_free + engine.host_returning) // PAGE,
            "pool_free": int(engine.scheduler.token_to_kv_pool_allocator.available_size()) // PAGE,
            "orphans": len(self.orphans()),
            "believed": self.believed(),
            "stored": self.stored(),
            "evicted": sorted(self.dropped),
            "idle": self.idle(),
            "filling": self._filling(),
            "orphan_pages": sum(self._host_pages(one) for one in self.orphans()),
        }

    @staticmethod
    def _host_pages(operation: Any) -> int:
        """Host pages that an operation still answers for: what had arrived when it was cut is gone already."""
        host = operation.host_indices
        return 0 if host is None else max(0, len(host) - int(operation.completed_tokens)) // PAGE

    def _filling(self) -> int | None:
        pipeline = self._engine.pipeline
        if pipeline is None:
            return None
        return sum(len(one.host_indices) for one in pipeline.ongoing_buffer_load_back.values()) // PAGE
