"""Puts the drop-in retries into an engine through SGLang's own plugin framework."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Final

from .retries import INTERVAL, MAX_ATTEMPTS, MissMarkers, StoragePrefetchRetries, rules

SCHEDULER: Final = "sglang.srt.managers.scheduler.Scheduler"
TREE: Final = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
RETRIES: Final = "sglang.srt.mem_cache.storage_prefetch.StoragePrefetchRetries"


def register(profile: str = "recommended") -> None:
    """Have SGLang's plugin framework put the drop-in in the place of its own; before `load_plugins`.

    Raises ValueError for an unknown profile and ImportError without SGLang.
    """
    mends = rules(profile).mends
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if find_spec(RETRIES.rpartition(".")[0]) is not None:
        bound = type(StoragePrefetchRetries.__name__, (StoragePrefetchRetries,), {"profile": profile})
        HookRegistry.register(RETRIES, bound, HookType.REPLACE)
    else:
        markers = type(MissMarkers.__name__, (MissMarkers,), {"profile": profile})

        def mark(_result: None, tree: Any, *_: Any, **__: Any) -> None:
            tree._storage_prefetch_missed_rids = markers()

        HookRegistry.register(f"{TREE}.__init__", mark, HookType.AFTER)
        HookRegistry.register(
            f"{SCHEDULER}._retry_missed_storage_prefetches", _sweep_missed, HookType.REPLACE
        )
    if mends:
        HookRegistry.register(f"{SCHEDULER}._add_request_to_queue", _begin, HookType.BEFORE)
        HookRegistry.register(f"{TREE}.prefetch_from_storage", _asking, HookType.AROUND)


def _of(tree: Any) -> StoragePrefetchRetries | MissMarkers | None:
    """The drop-in of a tree; None for a tree without retries."""
    name = (
        "storage_prefetch_retries"
        if hasattr(tree, "storage_prefetch_retries")
        else "_storage_prefetch_missed_rids"
    )
    found = getattr(tree, name, None)
    return found if isinstance(found, StoragePrefetchRetries | MissMarkers) else None


def _sweep_missed(scheduler: Any) -> None:
    """0.5.19's sweep, with the machine's decisions."""
    from sglang.srt.runtime_context import get_memory

    tree = scheduler.tree_cache
    markers = _of(tree)
    if not isinstance(markers, MissMarkers):
        return
    interval, max_attempts = (getattr(get_memory(), name) for name in (INTERVAL, MAX_ATTEMPTS))
    due = markers.sweep(scheduler.waiting_queue, interval, max_attempts, tree.pop_storage_prefetch_miss)
    for req in due:
        scheduler._prefetch_kvcache(req)


def _begin(scheduler: Any, req: Any, *_: Any, **__: Any) -> None:
    found = _of(scheduler.tree_cache)
    if found is not None:
        found.begin(req)


def _asking(original: Callable[..., Any], tree: Any, *args: Any, **kwargs: Any) -> Any:
    found = _of(tree)
    if found is None:
        return original(tree, *args, **kwargs)
    with found.asking():
        return original(tree, *args, **kwargs)
