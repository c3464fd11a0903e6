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
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..settings import FaultPlan
from .pacing import CALLS

if TYPE_CHECKING:
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
                return _written(call.__name__, keys, fault == "wrong")
            answer = call(keys, *args, **kwargs)
            if fault == "wrong" and kind == "exists":
                return _all_there(answer, len(keys))
            return _cut(answer, len(keys), extent if fault == "short" else 0.0)

        return faulty

    def _wait(self, passes: tuple[int, int], extent: float) -> None:
        least, most = passes
        self._clock._hold(lambda: None, least + int(extent * (most - least)))()


def _written(name: str, keys: Any, done: bool) -> Any:
    """What a write says; the one of several pools is given a transfer a pool and answers by pool."""
    if name == "batch_set_v2":
        return {transfer.name: [done] * len(transfer.keys or ()) for transfer in keys}
    return done if name == "batch_set" else [done] * len(keys)


def _all_there(answer: Any, pages: int) -> Any:
    """An answer to a question that finds all ``pages``, in every pool that it speaks of."""
    if not hasattr(answer, "extra_pool_hit_pages"):
        return pages if isinstance(answer, int) else answer
    return replace(
        answer, kv_hit_pages=pages, extra_pool_hit_pages=dict.fromkeys(answer.extra_pool_hit_pages, pages)
    )


def _cut(answer: Any, pages: int, share: float) -> Any:
    """An answer of the same shape, cut after a share of its ``pages``, in every pool."""
    if isinstance(answer, dict):
        return {pool: _cut(told, len(told), share) for pool, told in answer.items()}
    kept = int(share * pages)
    if hasattr(answer, "extra_pool_hit_pages"):
        hits = {pool: min(hit, kept) for pool, hit in answer.extra_pool_hit_pages.items()}
        return replace(answer, kv_hit_pages=min(answer.kv_hit_pages, kept), extra_pool_hit_pages=hits)
    return _like(answer, pages, kept)


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
