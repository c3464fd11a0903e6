"""A storage that answers late, short, wrongly or not at all, by a seed.

The faults wrap the calls of the installed backend, so that everything behind them stays the engine's own. Each
kind of call draws from a generator of its own: every I/O thread makes its calls one after another, so a seed
fixes which of them go wrong.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from ..settings import FaultPlan
from .pacing import CALLS
from .stepped import SteppedScheduler


class StorageFaults:
    """Faults put between the controller and its backend. ``counts`` is by call and fault, as ``read late``."""

    def __init__(self, engine: SteppedScheduler, plan: FaultPlan, seed: int) -> None:
        """Raises ``ValueError`` when the engine's storage is not paced in passes."""
        if engine.clock is None:
            raise ValueError("storage faults are counted in passes: they need storage paced in passes")
        self._clock: Any = engine.clock
        self._plan = plan
        self.counts: Counter[str] = Counter()
        backend = engine.scheduler.tree_cache.cache_controller.storage_backend
        for name, kind in CALLS.items():
            if hasattr(backend, name):
                rng = random.Random(f"{seed}:{name}")
                setattr(backend, name, self._faulty(getattr(backend, name), kind, rng))

    def _faulty(self, call: Callable[..., Any], kind: str, rng: random.Random) -> Callable[..., Any]:
        plan = self._plan

        @functools.wraps(call)
        def faulty(keys: Any, *args: Any, **kwargs: Any) -> Any:
            # drawn whether needed or not, so that one fault does not shift all later ones
            goes_wrong, fault, extent = rng.random() < plan.share, rng.choice(plan.kinds), rng.random()
            if not goes_wrong or (fault == "silent" and extent >= plan.silent_share):
                return call(keys, *args, **kwargs)
            self.counts[f"{kind} {fault}"] += 1
            if fault == "late":
                self._wait(plan.late_passes, extent)
                return call(keys, *args, **kwargs)
            if fault == "silent":
                self._wait(plan.silent_passes, extent / plan.silent_share)
            if fault == "error":
                call(keys, *args, **kwargs)
                raise OSError("planted: storage failed")
            if kind == "write":
                done = fault == "wrong"
                return done if call.__name__ == "batch_set" else [done] * len(keys)
            answer = call(keys, *args, **kwargs)
            if fault == "short":
                return _like(answer, len(keys), int(extent * len(keys)))
            if fault == "wrong" and isinstance(answer, int):
                return len(keys)
            return _like(answer, len(keys), 0)

        return faulty

    def _wait(self, passes: tuple[int, int], extent: float) -> None:
        least, most = passes
        self._clock._hold(lambda: None, least + int(extent * (most - least)))()


def _like(answer: Any, pages: int, kept: int) -> Any:
    """An answer of the same shape, cut after ``kept`` of ``pages`` pages; an unknown shape stays whole."""
    if isinstance(answer, bool):
        return answer and kept >= pages
    if isinstance(answer, int):
        return min(answer, kept)
    if isinstance(answer, list):
        none: Any = False if all(isinstance(one, bool) for one in answer) else None
        return [*answer[:kept], *[none] * (len(answer) - kept)]
    return answer
