"""Aborts at a chosen stage of a request's prefetch, instead of after a number of passes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ..view import EngineView, key_of
from .stepped import SteppedScheduler

STAGES = ("asking", "missed", "parked", "transferring", "staged", "running")
"""Before the answer, with its marker up, with a known hit and no room, while pages are read, with a staged hold or
loaded pages, and after admission."""


class StageAborts:
    """Draws for some requests a stage at which they are aborted, once it is reached.

    ``counts`` says how many were aborted at each stage. A request that skips its stage lives on.
    """

    def __init__(self, engine: SteppedScheduler, share: float, seed: int) -> None:
        """``share`` of the requests, from 0 to 1."""
        self._engine = engine
        self._view = EngineView(engine.scheduler)
        self._share = share
        self._rng = random.Random(f"{seed}:stages")
        self._stage: dict[str, str] = {}
        self.counts: Counter[str] = Counter()

    def submitted(self, rid: str) -> None:
        """A request was queued: draw whether and where it will be aborted."""
        drawn, stage = self._rng.random(), self._rng.choice(STAGES)
        if drawn < self._share:
            self._stage[rid] = stage

    def due(self) -> Iterator[str]:
        """Requests that stand at their stage now, each once."""
        if not self._stage:
            return
        for request, stage in list(self._stages()):
            if self._stage.get(request.rid) == stage:
                del self._stage[request.rid]
                self.counts[stage] += 1
                yield request.rid

    def _stages(self) -> Iterator[tuple[Any, str]]:
        scheduler, view = self._engine.scheduler, self._view
        parked = {id(operation) for operation in view.parked()}
        for request in scheduler.waiting_queue:
            key = key_of(request)
            operation = view.live_operation(key)
            if operation is None:
                if view.hold(key) is not None or view.loaded_tokens(key):
                    yield request, "staged"
                elif view.armed(request, True):
                    yield request, "missed"
            elif id(operation) in parked:
                yield request, "parked"
            else:
                yield request, "asking" if operation.host_indices is None else "transferring"
        for request in scheduler.running_batch.reqs:
            yield request, "running"
