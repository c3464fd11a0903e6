"""Where 0.5.19 and 0.5.20 to 0.5.23 do the same thing by other names: keys, matches, pins and copies."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hicache_fsm.runtime import AttemptKey


@dataclass(frozen=True, slots=True)
class Match:
    """What the device holds of a prompt: the deepest node, the slots up to it (one a token), and the tokens that a
    pin on it locks."""

    node: Any
    slots: torch.Tensor
    pin_tokens: int


def tree_key(tokens: Sequence[int]) -> Any:
    """The tree's key of some tokens, in the namespace of requests that have none."""
    from sglang.srt.mem_cache.radix_cache import RadixKey

    return RadixKey(array("q", tokens), extra_key=None)


def page_hashes(tokens: Sequence[int], page_size: int) -> tuple[str, ...]:
    """Storage's names of the whole pages of a prompt, in order; each depends on all before it."""
    from sglang.srt.mem_cache.utils import get_hash_str

    names: list[str] = []
    for start in range(0, len(tokens) - page_size + 1, page_size):
        names.append(get_hash_str(list(tokens[start : start + page_size]), names[-1] if names else None))
    return tuple(names)


class Release:
    """0.5.22 and 0.5.23: handles carry the attempt, and a pin counts the whole node."""

    def __init__(self, scheduler: Any) -> None:
        self.tree = scheduler.tree_cache
        self.controller = self.tree.cache_controller
        self.pipeline = self.tree.buffer_pipeline

    def handle(self, key: AttemptKey) -> Any:
        """What the cache files an attempt under."""
        from sglang.srt.mem_cache.base_prefix_cache import CacheRequestHandle

        return CacheRequestHandle(key.rid, key.attempt)

    def match(self, tokens: Sequence[int]) -> Match:
        """The live match, on the device alone. It may split a node."""
        found = self._matched(tokens)
        slots = self._slots(found)
        held = tokens[: len(slots)]
        pin = self.tree.tree_core.match_full_device_prefix(tree_key(held))[2] if held else 0
        return Match(found.last_device_node, slots, int(pin))

    def _slots(self, found: Any) -> torch.Tensor:
        slots: torch.Tensor = self.tree.path_device_indices(found.last_device_node)[: found.device_prefix_len]
        return slots

    def lock_anchor(self, handle: Any) -> str:
        """Pin the path of the prefix that was set for the handle: the pipeline's own verdict."""
        verdict, _ = self.pipeline.try_lock_anchor(handle, 0)
        return str(verdict)

    def queue_load(self, pages: torch.Tensor, slots: torch.Tensor, number: int) -> None:
        """Queue a copy of host pages to device slots that are the caller's; ``number`` comes back as its ack."""
        self.controller.load(host_indices=pages, node_id=number, device_indices=slots)

    def _matched(self, tokens: Sequence[int]) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams

        return self.tree.match_prefix(MatchPrefixParams(key=tree_key(tokens)))


class Release0521(Release):
    """0.5.20 and 0.5.21: a match brings its slots along, and no load takes the caller's."""

    def _slots(self, found: Any) -> torch.Tensor:
        slots: torch.Tensor = found.device_indices
        return slots

    def queue_load(self, pages: torch.Tensor, slots: torch.Tensor, number: int) -> None:
        # its `load` knows no slots but its own
        from sglang.srt.managers.cache_controller import CacheOperation

        self.controller.load_queue.append(CacheOperation(pages, slots, number, None))


class Release0519(Release0521):
    """0.5.19: keyed by request id alone, so that the id is made to carry the attempt (#39318)."""

    def handle(self, key: AttemptKey) -> Any:
        return str(key)

    def match(self, tokens: Sequence[int]) -> Match:
        found = self._matched(tokens)
        return Match(found.last_device_node, found.device_indices, len(found.device_indices))

    def lock_anchor(self, handle: Any) -> str:
        return str(self.pipeline.try_lock_anchor(handle))


def release(scheduler: Any) -> Release:
    """The release that a scheduler is of.

    Raises ``ValueError`` for a scheduler that this executor does not cover, with the reason.
    """
    tree = scheduler.tree_cache
    if getattr(tree, "buffer_pipeline", None) is None:
        raise ValueError("SGLang's pools are covered with --hicache-host-memory-mode buffer_only alone")
    if len(tree.tree_components) != 1:
        raise ValueError("SGLang's pools are covered for dense models alone: this one has sidecar pools")
    if tree.tree_core.is_eagle:
        raise ValueError("SGLang's pools are not covered with EAGLE's bigram keys")
    if not tree.enable_storage:
        raise ValueError("the scheduler has no storage backend: attach one first")
    if tree.tp_world_size != 1 or tree.pp_size != 1:
        raise ValueError("SGLang's pools are covered on one rank alone: ranks would drain their queues apart")
    # 0.5.19 pins only if it is told to, and says `no_anchor` otherwise
    if not getattr(tree.buffer_pipeline, "anchor_lock_enabled", True):
        raise ValueError("SGLang's anchor pins are off: set SGLANG_ENABLE_HICACHE_BUFFER_ANCHOR_LOCK=1")
    if not hasattr(tree, "storage_prefetch_retries"):
        return Release0519(scheduler)
    return (Release if hasattr(tree, "path_device_indices") else Release0521)(scheduler)
