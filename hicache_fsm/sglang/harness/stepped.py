"""The installed SGLang scheduler, one pass a call, with nothing of it replaced but device copies."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from ..settings import EngineSettings
from . import hybrid, shims, versions
from .pacing import IoClock


@dataclass(slots=True)
class RequestOutput:
    """What became of one request."""

    rid: str
    admitted: list[int] = field(default_factory=list)
    """Passes on which it was scheduled for prefill anew (more than one after a retraction)."""
    finish: str | None = None
    """``length``, ``stop`` or ``abort``; None while it lives."""
    tokens: list[int] = field(default_factory=list)
    """Output token ids."""


class _Sink:
    """Takes the place of the scheduler's sockets and keeps what a client would read."""

    def __init__(self, outputs: dict[str, RequestOutput]) -> None:
        self._outputs = outputs

    def send_output(self, output: Any, _recv: object = None) -> None:
        rids: Iterable[str] = getattr(output, "rids", None) or ()
        reasons = getattr(output, "finished_reasons", None) or ()
        chunks = getattr(output, "output_ids", None) or [()] * len(reasons)
        for rid, reason, tokens in zip(rids, reasons, chunks, strict=False):
            request = self._outputs[rid]
            request.tokens.extend(tokens)
            if reason is not None:
                request.finish = reason["type"]
        if type(output).__name__ == "AbortReq" and output.rid in self._outputs:
            self._outputs[output.rid].finish = "abort"


def server_arguments(settings: EngineSettings, folder: Path) -> dict[str, Any]:
    """The ``ServerArgs`` fields of an engine; ``folder`` takes the model."""
    model = hybrid.write(folder / "model", settings)
    arguments: dict[str, Any] = {
        "model_path": str(model),
        "dtype": "float32",
        "device": "cpu",
        "attention_backend": "torch_native",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": True,
        "skip_tokenizer_init": True,
        "skip_server_warmup": True,
        "random_seed": settings.seed,
        "page_size": settings.page_size,
        "max_total_tokens": settings.pool_tokens,
        "max_running_requests": settings.max_running,
        "max_queued_requests": settings.max_queued,
        "context_length": settings.context_tokens,
        "chunked_prefill_size": settings.chunk_tokens,
        "log_level": "error",
        **hybrid.arguments(settings),
    }
    if not settings.cache:
        return {**arguments, "disable_radix_cache": True}
    extra: dict[str, float] = {"prefetch_threshold": settings.prefetch_threshold}
    timed = settings.latency is None
    if settings.storage == "sim":
        extra |= {
            "sim_write_gbps": 0.02 if timed else 0,
            "sim_read_gbps": 0.005 if timed else 0,
            "sim_op_latency_us": 1500 if timed else 0,
        }
    return arguments | {
        "enable_hierarchical_cache": True,
        "hicache_host_memory_mode": settings.mode,
        "hicache_storage_backend": settings.storage,
        "hicache_io_backend": "direct",
        "hicache_mem_layout": "page_first_direct",
        "hicache_ratio": settings.host_ratio,
        "hicache_write_policy": "write_through",
        "hicache_storage_prefetch_policy": settings.policy,
        "hicache_storage_prefetch_retry_poll_interval": settings.retry_interval,
        "hicache_storage_prefetch_retry_max_attempts": settings.retry_attempts,
        "hicache_storage_backend_extra_config": json.dumps(extra),
    }


class SteppedScheduler:
    """A scheduler that advances only when asked. One a process: SGLang's configuration is process wide.

    Import this module after the environment variables of SGLang are set; building takes seconds.
    """

    clock_type: ClassVar[type[IoClock]] = IoClock

    def __init__(
        self,
        settings: EngineSettings,
        folder: Path,
        *,
        plugins: bool = True,
        overrides: Mapping[str, Any] | None = None,
        rank: int = 0,
    ) -> None:
        """``folder`` takes the model; ``plugins`` loads those that ``SGLANG_PLUGINS`` allows.

        ``overrides`` are ``ServerArgs`` fields that go before those of ``settings``; ``rank`` is that of tensor
        parallelism. Raises what SGLang raises.
        """
        adapter = versions.adapter(settings.version)
        if plugins:
            from sglang.srt.plugins import load_plugins

            load_plugins()
        from sglang.srt.server_args import PortArgs, ServerArgs

        self.settings = settings
        self.outputs: dict[str, RequestOutput] = {}
        server_args = ServerArgs(**{**server_arguments(settings, folder), **(overrides or {})})
        shims.apply(adapter)
        hybrid.prepare(settings)
        self.scheduler: Any = adapter.build(server_args, PortArgs.init_new(server_args), rank)
        hybrid.finish(self.scheduler, settings)
        sink = _Sink(self.outputs)
        self.scheduler.output_streamer.send_to_detokenizer = sink
        # a frozen, slotted dataclass: plain assignment raises
        object.__setattr__(self.scheduler.ipc_channels, "send_to_tokenizer", sink)
        self.passes = 0
        """Scheduling passes done so far."""
        self.hold_decode = False
        """Running requests stay as they are: a pass that would decode runs nothing."""
        self._running: set[str] = set()
        controller = getattr(self.scheduler.tree_cache, "cache_controller", None)
        paced = settings.cache and settings.latency is not None
        self.clock = self.clock_type(controller, settings.latency) if paced and settings.latency else None

    def submit(
        self,
        rid: str,
        tokens: Sequence[int],
        *,
        max_new_tokens: int,
        greedy: bool = True,
        priority: int | None = None,
    ) -> None:
        """Queue a request of prompt ``tokens``; the first storage question is asked inside this call."""
        from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = SamplingParams(
            max_new_tokens=max_new_tokens, temperature=0.0 if greedy else 1.0, ignore_eos=True
        )
        sampling.normalize(None)
        self.outputs[rid] = RequestOutput(rid)
        request = TokenizedGenerateReqInput(
            rid=rid,
            input_text=None,
            input_ids=array("q", tokens),
            input_embeds=None,
            mm_inputs=None,
            token_type_ids=None,
            sampling_params=sampling,
            return_logprob=False,
            logprob_start_len=-1,
            top_logprobs_num=0,
            token_ids_logprob=None,
            stream=False,
            priority=priority,
        )
        with torch.inference_mode():
            self.scheduler.process_input_requests([request])

    def abort(self, rid: str) -> None:
        """Abort a queued or running request, as a client would; unknown ids are ignored."""
        from sglang.srt.managers.io_struct import AbortReq

        with torch.inference_mode():
            self.scheduler.process_input_requests([AbortReq(rid=rid)])

    def step(self) -> list[str]:
        """One scheduling pass; the ids scheduled for prefill on it, in batch order."""
        if self.clock is not None:
            self.clock.begin_pass()
        self.passes += 1
        scheduler = self.scheduler
        with torch.inference_mode():
            plan = scheduler.get_next_batch_to_run(
                running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
            )
            scheduler.running_batch = plan.running_batch
            batch = plan.batch_to_run
            if self.hold_decode and batch is plan.running_batch:
                batch = None
            scheduler.cur_batch_for_debug = batch
            admitted = self._note_admissions(batch)
            if batch:
                scheduler.process_batch_result(batch, scheduler.run_batch(batch))
            else:
                scheduler._sched_idled = True
                scheduler.on_idle()
            scheduler.last_batch = batch
        return admitted

    def _note_admissions(self, batch: Any) -> list[str]:
        waiting = {request.rid for request in self.scheduler.waiting_queue}
        self._running -= waiting
        if not batch or not batch.forward_mode.is_extend():
            return []
        admitted = [request.rid for request in batch.reqs if request.rid not in self._running]
        for rid in admitted:
            self.outputs[rid].admitted.append(self.passes)
        self._running.update(admitted)
        return admitted

    @property
    def idle(self) -> bool:
        """Nothing queued, running, or in flight between the tiers."""
        return bool(self.scheduler.is_fully_idle())

    @property
    def writes_in_flight(self) -> bool:
        """Whether a device page is still on its way to storage."""
        tree = self.scheduler.tree_cache
        if getattr(tree, "ongoing_write_through", None) or getattr(tree, "ongoing_backup", None):
            return True
        pipeline = getattr(tree, "buffer_pipeline", None)
        return pipeline is not None and not pipeline.is_idle()

    def drain(self, limit: int = 20_000) -> int:
        """Step until idle and storage owes no answer; the passes it took.

        Raises ``RuntimeError`` when ``limit`` passes do not suffice.
        """
        start = self.passes
        while not self.idle or (self.clock is not None and self.clock.busy):
            if self.passes - start >= limit:
                raise RuntimeError(
                    f"not idle after {limit} passes: {len(self.scheduler.waiting_queue)} queued"
                )
            self.step()
        return self.passes - start

    def close(self) -> None:
        """Let every held storage call go and stop the storage threads."""
        if self.clock is not None:
            self.clock.release_all()
        controller = getattr(self.scheduler.tree_cache, "cache_controller", None)
        if controller is not None and controller.enable_storage:
            controller.detach_storage_backend()
