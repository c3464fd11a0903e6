"""Several ranks of the installed SGLang scheduler, a process each, stepped together.

Rank 0 is told what to do and passes it on, as SGLang's own receiver does with what its clients send. Everything
behind that, the model's shards and the cache's consensus, is SGLang's own over gloo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import distributed

from ..settings import EngineSettings
from .pacing import IoClock
from .ranked_pacing import RankedClock
from .stepped import RequestOutput, SteppedScheduler

GIVE_UP_S = 120.0
"""How long a rank waits for the others."""
Order = tuple[str, str, tuple[int, ...], dict[str, Any]]
"""``submit``, ``abort`` or the class of a control request; a request id, its tokens, the arguments by name."""


class RankedScheduler(SteppedScheduler):
    """One rank. On rank 0 it is driven like a scheduler alone; the other ranks call ``follow``."""

    clock_type: ClassVar[type[IoClock]] = RankedClock

    def __init__(
        self,
        settings: EngineSettings,
        folder: Path,
        *,
        rank: int,
        ranks: int,
        port: int,
        plugins: bool = True,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        """``port`` is a free one on this machine, the same for all ranks. Raises what SGLang raises."""
        several = {"tp_size": ranks, "nccl_port": port, **(overrides or {})}
        super().__init__(settings, folder, plugins=plugins, overrides=several, rank=rank)
        self.rank = rank
        self.ranks = ranks
        self._orders: list[Order] = []
        self._group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=GIVE_UP_S))
        self._restless = self._writing = False
        self.noted: dict[str, Any] = {}
        """What a plant or a drive wants told of this rank."""

    def submit(
        self,
        rid: str,
        tokens: Sequence[int],
        *,
        max_new_tokens: int,
        greedy: bool = True,
        priority: int | None = None,
    ) -> None:
        """Queue a request on all ranks, when the next pass begins."""
        self.outputs[rid] = RequestOutput(rid)
        options = {"max_new_tokens": max_new_tokens, "greedy": greedy, "priority": priority}
        self._orders.append(("submit", rid, tuple(tokens), options))

    def abort(self, rid: str) -> None:
        """Abort a request on all ranks, when the next pass begins."""
        self._orders.append(("abort", rid, (), {}))

    def control(self, kind: str, **fields: Any) -> None:
        """Hand a control request, by the name of its class in ``io_struct``, to all ranks when the next pass begins."""
        self._orders.append((kind, "", (), fields))

    def step(self) -> list[str]:
        """One pass on every rank; rank 0 only."""
        orders, self._orders = self._orders, []
        self._broadcast(orders)
        return self._pass(orders)

    def follow(self) -> None:
        """Do what rank 0 does, until it stops; the other ranks only."""
        while (orders := self._broadcast(None)) is not None:
            self._pass(orders)

    def stop(self) -> None:
        """Let the other ranks return from ``follow``; rank 0 only."""
        self._broadcast(None)

    def _broadcast(self, orders: list[Order] | None) -> list[Order] | None:
        told = [orders]
        distributed.broadcast_object_list(told, src=0, group=self._group)
        return told[0]

    def _pass(self, orders: list[Order]) -> list[str]:
        for what, rid, tokens, options in orders:
            if what == "submit":
                super().submit(rid, tokens, **options)
            elif what == "abort":
                super().abort(rid)
            else:
                from sglang.srt.managers import io_struct

                with torch.inference_mode():
                    self.scheduler.process_input_requests([getattr(io_struct, what)(**options)])
        admitted = super().step()
        restless = not super().idle or (self.clock is not None and self.clock.busy)
        somewhere = torch.tensor([restless, super().writes_in_flight], dtype=torch.int32)
        distributed.all_reduce(somewhere, op=distributed.ReduceOp.MAX, group=self._group)
        self._restless, self._writing = map(bool, somewhere.tolist())
        return admitted

    @property
    def idle(self) -> bool:
        """Nothing queued, running, in flight or owed by storage, on any rank."""
        return not self._orders and not self._restless

    @property
    def writes_in_flight(self) -> bool:
        """Whether on any rank a device page is still on its way to storage."""
        return self._writing

    def drain(self, limit: int = 20_000) -> int:
        """Step until no rank has anything to do; rank 0 only. Raises ``RuntimeError`` after ``limit`` passes."""
        start = self.passes
        while not self.idle:
            if self.passes - start >= limit:
                raise RuntimeError(f"not idle after {limit} passes")
            self.step()
        return self.passes - start
