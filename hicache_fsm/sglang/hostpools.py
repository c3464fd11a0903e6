"""The host pools of an engine and who owns their slots: the KV pool, and those beside it (SWA, states)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .ledger import Ledger
from .sides import KV, beside, pool_name, tree_nodes
from .view import EngineView


@dataclass(frozen=True, slots=True)
class HostPool:
    """One pool. ``names`` are its own, the first for messages."""

    names: tuple[str, ...]
    pool: Any

    @property
    def label(self) -> str:
        """What a message adds to "host slots"."""
        return "" if KV in self.names else f" of pool {self.names[0]}"

    def used(self) -> tuple[Any, int]:
        """A boolean for each slot, whether it is in use, and how many slots were given back twice.

        Most pools keep such a mask and refuse what is given back twice; that of states has a free list alone.
        """
        import torch

        mask = getattr(self.pool, "slot_used", None)
        if mask is not None:
            return mask, 0
        free = torch.cat([self.pool.free_slots, *self.pool.release_slots])
        mask = torch.ones(int(self.pool.size), dtype=torch.bool)
        mask[free] = False
        return mask, len(free) - len(free.unique())


def host_pools(view: EngineView) -> list[HostPool]:
    """Each pool with a list of free slots once, however many names it has."""
    group = view.controller.mem_pool_host
    named: dict[int, tuple[list[str], Any]] = {}
    for entry in getattr(group, "entries", None) or ():
        named.setdefault(id(entry.host_pool), ([], entry.host_pool))[0].append(pool_name(entry.name))
    if not named:
        named[id(group)] = ([KV], group)
    return [HostPool(tuple(names), pool) for names, pool in named.values() if hasattr(pool, "release_slots")]


def host_owners(ledger: Ledger) -> Iterator[tuple[str, Any]]:
    """Who owns host slots: (pool name, int64 tensor of slot numbers), one for each owner and pool."""
    view = ledger.view
    tree, pipeline, controller = view.tree, view.pipeline, view.controller
    live = set()
    for entry in tree.ongoing_prefetch.values():
        live.add(entry.operation.id)
        if entry.host_indices is not None:
            # the operation's, not the entry's: they are the same slots, trimmed the same way
            yield KV, entry.operation.host_indices
        for transfers in (entry.comp_xfers or {}).values():
            yield from beside(transfers)
    for operation in ledger.in_flight.values():
        if operation.id not in live:
            yield KV, operation.host_indices[operation.completed_tokens :]
            if not operation.pool_transfers_done:
                yield from beside(operation.pool_transfers)
    if pipeline is not None:
        moving = (*pipeline.ongoing_write_through.values(), *pipeline.ongoing_backup.values())
        fills = pipeline.ongoing_buffer_load_back.values()
        for owner in (*pipeline.staged_prefetches.values(), *fills, *moving):
            yield KV, owner.host_indices
            yield from beside(owner.aux_xfers)
    else:
        for node in tree_nodes(view.tree):
            for side in node.sides:
                if side.host_indices is not None:
                    yield side.pool, side.host_indices
    yield from _releases(KV, controller.host_mem_release_queue)
    for name, queue in (getattr(controller, "extra_host_mem_release_queues", None) or {}).items():
        yield from _releases(pool_name(name), queue)


def _releases(pool: str, queue: Any) -> Iterator[tuple[str, Any]]:
    """Slots that were given back and wait for the scheduler to free them."""
    if queue is None:
        return
    with queue.mutex:
        waiting = list(queue.queue)
    for slots in waiting:
        yield pool, slots
