"""The node machine on a real radix tree with a window pool: tombstones, load-backs and evictions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from hicache_fsm.executor.errors import OwnershipError, PoolExhaustedError, StillUnderIoError
from hicache_fsm.runtime import AttemptKey, NullExecutor, Undo
from hicache_fsm.runtime.attempt import Node

from .versions import tree_key


@dataclass(slots=True, eq=False)
class Claim:
    """A load-back: ``owner`` asked for it (None once it was taken back), ``number`` is the tree's for its copy."""

    owner: Hashable
    number: Any


class SGLangNodes(NullExecutor):
    """Effects of the node machine on SGLang's own tree and pools: ``cache`` mode, a hybrid SWA model, one rank.

    SGLang evicts by age and knows no node by name. Here a node has a name, the tokens from the root to its end, and
    its own span, behind the node above it; whatever else is known is locked while one is freed. SGLang makes a
    tombstone of a node alone below which another one lives: of any other it frees both sides at once.
    """

    def __init__(self, scheduler: Any) -> None:
        """Raises ``ValueError`` for a scheduler that is not covered, with the reason."""
        self.tree = scheduler.tree_cache
        self.controller = self.tree.cache_controller
        self.allocator = scheduler.token_to_kv_pool_allocator
        if getattr(self.tree, "buffer_pipeline", None) is not None:
            raise ValueError(
                "nodes are loaded back from the host with --hicache-host-memory-mode cache alone"
            )
        if len(self.tree.tree_components) != 2 or not hasattr(self.allocator, "swa_attn_allocator"):
            raise ValueError("tombstones are of models with sliding-window layers: this one has none")
        self._tokens: dict[Node, tuple[int, ...]] = {}
        self._starts: dict[Node, int] = {}
        self._claims: dict[Node, Claim] = {}
        self._locks: dict[AttemptKey, tuple[Any, Any]] = {}

    # ---- effects

    def claim(self, node: Node, owner: Hashable, undo: Undo) -> None:
        if node in self._claims and self._claims[node].owner is not None:
            raise OwnershipError(f"node {node} is being loaded by {self._claims[node].owner} (#35931)")
        undo(lambda: self._take_back(node))
        if node in self._claims:
            # a copy cannot be recalled: whoever asks next goes on with it
            self._claims[node].owner = owner
            return
        found = self._matched(node)
        if not found.host_hit_length and not found.swa_host_hit_length:
            raise OwnershipError(f"node {node} has nothing on the host that the device lacks")
        if not self.tree.load_back(found.best_match_node):
            raise PoolExhaustedError(f"SGLang would not load node {node} back")
        self._claims[node] = Claim(owner, found.best_match_node)

    def unclaim(self, node: Node, owner: Hashable) -> None:
        claim = self._claims.get(node)
        if claim is None:
            return
        if claim.number in self.tree.ongoing_load_back:
            raise StillUnderIoError(f"the copy of node {node} has not been acknowledged")
        del self._claims[node]

    def free_swa(self, node: Node) -> None:
        slots = self._slots(node)
        if not len(slots) or not len(self._windows(slots)):
            return
        if not any(len(self._slots(other)) for other in self._children(node)):
            raise OwnershipError(f"node {node} has no node below it: SGLang would free both sides")
        self._evict(node, full=0, window=len(slots))
        if len(self._windows(slots)):
            raise OwnershipError(f"node {node} is locked")

    def free_both(self, node: Node) -> None:
        self._free(node)

    def free_full(self, node: Node) -> None:
        self._free(node)

    def lock_anchor(self, key: AttemptKey, node: Node, tokens: int, undo: Undo) -> None:
        undo(lambda: self.unlock_anchor(key, node, tokens))
        at = self._matched(node).last_device_node
        self._locks[key] = at, self.tree.inc_lock_ref(at).to_dec_params()

    def unlock_anchor(self, key: AttemptKey, node: Node, tokens: int) -> None:
        if key in self._locks:
            self.tree.dec_lock_ref(*self._locks.pop(key))

    # ---- the embedder's

    def plant(self, node: Node, tokens: Sequence[int], fill: Callable[[torch.Tensor], None]) -> None:
        """A node that ends with the last of ``tokens``, on the device and copied to the host.

        ``fill`` gets its own slots of the full pool, and writes the rows of both. Raises ``OwnershipError`` for a
        name that is taken, and ``PoolExhaustedError``.
        """
        if node in self._tokens:
            raise OwnershipError(f"node {node} is there already")
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams

        key = tree_key(tokens)
        start = int(self.tree.tree_core.match_full_device_prefix(key)[0])
        slots = self.allocator.alloc(len(tokens) - start)
        if slots is None:
            raise PoolExhaustedError(f"device pool: {len(tokens) - start} tokens wanted")
        fill(slots)
        before = self._path(tokens[:start])
        self.tree.insert(InsertParams(key=key, value=torch.cat((before, slots)), prev_prefix_len=start))
        self.tree.match_prefix(MatchPrefixParams(key=key))
        self._tokens[node], self._starts[node] = tuple(tokens), start
        self.drain()

    def drain(self) -> list[tuple[Node, Hashable]]:
        """Start what is queued and book what SGLang's copies have acknowledged; load-backs that are over."""
        self.tree.flush_pending_backups()
        self.tree.ready_to_load_host_cache()
        self.tree.writing_check()
        self.tree.loading_check()
        over = []
        for node, claim in list(self._claims.items()):
            if claim.number not in self.tree.ongoing_load_back:
                if claim.owner is None:
                    del self._claims[node]
                else:
                    over.append((node, claim.owner))
        return over

    def sides(self, node: Node) -> tuple[int, int]:
        """Slots that the node has on the device now, in the full and in the window pool."""
        slots = self._slots(node)
        return len(slots), len(self._windows(slots))

    def slots(self, node: Node) -> tuple[torch.Tensor, torch.Tensor]:
        """The slots themselves, for those who read rows: full and window."""
        slots = self._slots(node)
        return slots, self._windows(slots)

    # ---- the tree

    def _free(self, node: Node) -> None:
        slots = self._slots(node)
        if not len(slots):
            return
        if any(len(self._slots(other)) for other in self._children(node)):
            raise OwnershipError(f"node {node} has nodes below it")
        self._evict(node, full=len(slots), window=0)
        if len(self._slots(node)):
            raise OwnershipError(f"node {node} is locked")

    def _evict(self, node: Node, *, full: int, window: int) -> None:
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        with self._others_locked(node):
            self.tree.evict(EvictParams(num_tokens=full, swa_num_tokens=window))

    @contextmanager
    def _others_locked(self, node: Node) -> Iterator[None]:
        locks = []
        try:
            for other in self._tokens:
                if other != node and other not in self._above(node) and len(self._slots(other)):
                    at = self._node(other)
                    locks.append((at, self.tree.inc_lock_ref(at).to_dec_params()))
            yield
        finally:
            for at, lock in locks:
                self.tree.dec_lock_ref(at, lock)

    def _above(self, node: Node) -> set[Node]:
        """Nodes on the way to it: they keep their slots by having it below them."""
        mine = self._tokens[node]
        return {
            name for name, theirs in self._tokens.items() if name != node and mine[: len(theirs)] == theirs
        }

    def _children(self, node: Node) -> list[Node]:
        mine = self._tokens[node]
        return [name for name, theirs in self._tokens.items() if name != node and theirs[: len(mine)] == mine]

    def _matched(self, node: Node) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams

        return self.tree.match_prefix(MatchPrefixParams(key=tree_key(self._tokens[node])))

    def _node(self, node: Node) -> Any:
        """The tree's handle, by its full side alone: a tombstone matches no prefix."""
        return self.tree.tree_core.match_full_device_prefix(tree_key(self._tokens[node]))[1]

    def _path(self, tokens: Sequence[int]) -> torch.Tensor:
        """Device slots of the full side from the root on, as far as there are any."""
        if not tokens:
            return torch.empty(0, dtype=torch.int64)
        held, at, _ = self.tree.tree_core.match_full_device_prefix(tree_key(tokens))
        slots: torch.Tensor = (
            self.tree.path_device_indices(at)[:held] if held else torch.empty(0, dtype=torch.int64)
        )
        return slots

    def _slots(self, node: Node) -> torch.Tensor:
        return self._path(self._tokens[node])[self._starts[node] :]

    def _windows(self, slots: torch.Tensor) -> torch.Tensor:
        mapped: torch.Tensor = self.allocator.full_to_swa_index_mapping[slots]
        return mapped[mapped > 0]

    def _take_back(self, node: Node) -> None:
        if node in self._claims:
            self._claims[node].owner = None
