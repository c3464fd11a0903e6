"""Doors of engines that this harness does not run, by those doors' own functions on a real request."""

from __future__ import annotations

from typing import Any

from .words import DONE, AbsentError, Answer, Part, UnableError, Word
from .world import PAGE


class Doors(Part):
    """Each takes a request that has just been queued, as it would come to that door."""

    def _fresh(self, rid: str) -> Any:
        request = self.engine.queued(rid)
        if request is None:
            raise AbsentError(f"{rid} is not queued")
        return request

    def abandon(self, word: Word) -> Answer:
        """The over-capacity door of a disaggregated prefill: a request comes to it with its question just asked."""
        from sglang.srt.disaggregation.prefill import PrefillBootstrapQueue

        (rid,) = word.subjects
        request = self._fresh(rid)
        if self.look.state(rid) not in ("queued", "probing"):
            raise UnableError("a request comes to that door before storage has answered anything")
        scheduler = self.engine.scheduler
        door: Any = PrefillBootstrapQueue.__new__(PrefillBootstrapQueue)
        door.scheduler, door.queue = scheduler, []
        # 0.5.19 names its limit after the pool
        door.max_input_len = door.max_total_num_tokens = len(request.origin_input_ids) - 1
        scheduler.waiting_queue = [one for one in scheduler.waiting_queue if one is not request]
        door.add(request, scheduler.model_config.num_key_value_heads)
        return DONE if not door.queue else ("refused", "the door let it in")

    def diffuse(self, word: Word) -> Answer:
        """The admission of a diffusion model's scheduler: the hand-over and the adder, without a forward pass."""
        from types import SimpleNamespace

        from sglang.srt.dllm.mixin.scheduler import DllmManager

        (rid,) = word.subjects
        request, scheduler = self._fresh(rid), self.engine.scheduler
        config, manager = scheduler.dllm_config, scheduler.dllm_manager
        scheduler.waiting_queue = [request]
        scheduler.dllm_config = SimpleNamespace(max_running_requests=1)
        scheduler.dllm_manager = DllmManager(dllm_config=scheduler.dllm_config)
        try:
            scheduler._fetch_waiting_reqs()
            taken = list(scheduler.dllm_manager.waiting_queue)
        finally:
            scheduler.dllm_config, scheduler.dllm_manager = config, manager
        if taken != [request]:
            return "refused", "it was left in the queue"
        self.engine.admission.open((rid,), (rid,))
        batch = scheduler.running_batch
        adder = scheduler._create_dllm_prefill_adder(0, batch)
        scheduler.process_dllm_incoming_reqs(adder, taken, batch)
        self.engine.admission.close()
        return DONE if adder.can_run_list == [request] else ("refused", "the adder did not take it")

    def interrupt(self, word: Word) -> Answer:
        """A decode server's question, by its own function, that raises once it has locked its anchor."""
        if self.engine.version == "0.5.19":
            raise UnableError("0.5.19 submits a question otherwise")
        from types import SimpleNamespace

        from sglang.srt.disaggregation.decode_hicache_mixin import DecodeHiCachePreallocMixin
        from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle, MatchPrefixParams

        (rid,) = word.subjects
        engine, prompt = self.engine, self.world.prompts[rid]
        key = self.look.radix_key(prompt)
        match = engine.tree.match_prefix(MatchPrefixParams(key=key))
        # a match brings its slots along before 0.5.22
        slots = getattr(match, "device_indices", None)
        length = int(match.device_prefix_len) if slots is None else len(slots)
        found = SimpleNamespace(
            l1_prefix_len=length,
            l2_host_hit_length=int(match.host_hit_length),
            l3_storage_hit_length=len(key) - length - int(match.host_hit_length),
            last_host_node=match.last_host_node,
            prefetch_registered=None,
        )

        def refuse(*_: Any, **__: Any) -> Any:
            raise MemoryError("no thread can be started")

        # 0.5.20 has no `submit_prefetch`
        submit = "submit_prefetch" if hasattr(engine.controller, "submit_prefetch") else "prefetch"
        vars(engine.controller)[submit] = refuse
        try:
            request = SimpleNamespace(
                rid=rid,
                cache_request_handle=CacheRequestHandle(rid, 0),
                origin_input_ids=engine.pages.tokens(prompt),
                extra_key=None,
                cache_salt=None,
            )
            server = SimpleNamespace(tree_cache=engine.tree)
            DecodeHiCachePreallocMixin._start_hicache_prefetch(server, request, found)
        finally:
            del vars(engine.controller)[submit]
        return DONE if found.prefetch_registered is False else ("refused", "the question went out")

    def reclaim(self, word: Word) -> Answer:
        """Host copies make room, as for a fetch; why tells the pages that did."""
        freed = self.engine.tree.evict_host(self.engine.host_size)
        return "done", str(int(freed) // PAGE)
