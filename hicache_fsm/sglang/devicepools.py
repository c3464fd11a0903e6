"""The device pools of an engine, slot by slot: the KV pool, the window pool beside it (SWA) and the states (Mamba).

A window slot has one owner at most: the slot of the full pool that is mapped to it. A tombstone is a node whose
window slots were given back while its full ones live; giving them back twice, or never, shows here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .sides import KV, tree_nodes
from .view import EngineView

TOMBSTONE = "tombstone-once"
CONSERVED = "conservation"
SWA, MAMBA = "swa", "mamba"


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with a device pool. ``name`` tells checks apart; ``amount`` is in slots, 0 where all is well."""

    name: str
    invariant: str
    amount: int
    message: str


@dataclass(frozen=True, slots=True)
class DevicePool:
    """One pool with a free list, and what the tree has of it; all in slots."""

    name: str
    allocator: Any
    size: int
    free: int
    evictable: int
    locked: int

    @property
    def label(self) -> str:
        """What a message adds to "device slots"."""
        return "" if self.name == KV else f" of pool {self.name}"


def device_pools(view: EngineView) -> list[DevicePool]:
    """Each pool that is a list of slots."""
    tree, allocator = view.tree, view.scheduler.token_to_kv_pool_allocator
    window = getattr(allocator, "swa_attn_allocator", None)
    if window is None:
        found = [_pool(KV, allocator, tree.evictable_size(), tree.protected_size())]
    else:
        full = allocator.full_attn_allocator
        found = [_pool(KV, full, tree.full_evictable_size(), tree.full_protected_size())]
        if window is not full and not getattr(allocator, "swa_req_ring", False):
            found.append(_pool(SWA, window, tree.swa_evictable_size(), tree.swa_protected_size()))
    requests = view.scheduler.req_to_token_pool
    states = getattr(requests, "mamba_allocator", None)
    # states that are kept as int8 checkpoints have a pool of their own
    if states is not None and getattr(requests, "mamba_ckpt_pool", None) is None:
        found.append(_pool(MAMBA, states, tree.mamba_evictable_size(), tree.mamba_protected_size()))
    return found


def _pool(name: str, allocator: Any, evictable: Any, locked: Any) -> DevicePool:
    free = int(allocator.available_size())
    return DevicePool(name, allocator, int(allocator.size), free, int(evictable), int(locked))


def at_any_time(view: EngineView) -> Iterator[Wrong]:
    """What holds between any two passes: free lists without repeats, and the map from full to window slots."""
    for pool in device_pools(view):
        free = _free_list(pool.allocator)
        twice = _repeats(free)
        invariant = TOMBSTONE if pool.name == SWA else CONSERVED
        # slot 0 is where padding is written: it is what a window slot that is gone already maps to (#36637)
        padding = int((free <= 0).sum())
        message = f"{padding} times the padding slot{pool.label} was given back"
        yield Wrong(f"padding {pool.name}", invariant, padding, message)
        message = f"{twice} device slots{pool.label} were given back twice"
        yield Wrong(f"free twice {pool.name}", invariant, twice, message)
    allocator = view.scheduler.token_to_kv_pool_allocator
    # pools that cut both sides from one arena have a map of another kind
    if type(allocator).__name__ == "SWATokenToKVPoolAllocator" and not getattr(
        allocator, "swa_req_ring", False
    ):
        yield from _windows(allocator)
        yield from _tombstones(view, allocator)


def at_rest(view: EngineView) -> Iterator[Wrong]:
    """What holds in an engine at rest: nothing is locked or claimed, and what is not free is in the tree."""
    for pool in device_pools(view):
        unit = "states" if pool.name == MAMBA else "tokens"
        locked = f"{pool.locked} device {unit}{pool.label} are locked in an engine at rest"
        yield Wrong(f"locked {pool.name}", CONSERVED, pool.locked, locked)
        lost = pool.size - pool.free - pool.evictable - pool.locked
        where = "neither free nor in the tree" if lost > 0 else "free or in the tree beyond what there is"
        message = f"{abs(lost)} device {unit}{pool.label} are {where}, at rest"
        yield Wrong(f"device {pool.name}", CONSERVED, lost, message)
    held = claimed = 0
    for node in tree_nodes(view.tree):
        held += sum(side.host_locks for side in node.sides)
        claimed += node.claim is not None
    yield Wrong("host locks", CONSERVED, held, f"{held} host locks are held on nodes in an engine at rest")
    message = f"{claimed} nodes are claimed by a load-back in an engine at rest"
    yield Wrong("claims", "load-exclusive", claimed, message)


def _windows(allocator: Any) -> Iterator[Wrong]:
    """Window slots against the full slots that own them, in pages of the window pool."""
    window, full = allocator.swa_attn_allocator, allocator.full_attn_allocator
    mapping = allocator.full_to_swa_index_mapping[:-1]
    page = int(allocator.page_size)
    owners = (mapping > 0).nonzero().flatten()
    slots = mapping[owners]
    pages = (slots // page).unique()
    free = _free_list(window).unique()
    twice = _repeats(slots)
    yield Wrong("two owners", CONSERVED, twice, f"{twice} device slots of pool {SWA} have two owners")
    loose = _common(pages, free)
    message = f"{loose} device pages of pool {SWA} are free and owned"
    yield Wrong("free and owned", TOMBSTONE, loose, message)
    lost = _missing(range(1, int(window.size) // page + 1), free, pages)
    message = f"{lost} device pages of pool {SWA} are in use and nobody's"
    yield Wrong("nobody's", CONSERVED, lost, message)
    stale = _common((owners // page).unique(), _free_list(full))
    message = f"{stale} device pages of pool {SWA} belong to full pages that are free"
    yield Wrong("owned by free", TOMBSTONE, stale, message)


def _tombstones(view: EngineView, allocator: Any) -> Iterator[Wrong]:
    """Nodes against the map, where the tree can be walked: a node has the window slots that its full ones map to."""
    kept = moved = 0
    for node in tree_nodes(view.tree):
        sides = {side.pool: side.device_indices for side in node.sides}
        full, window = sides.get(KV), sides.get(SWA)
        if full is None or not len(full):
            continue
        mapped = allocator.full_to_swa_index_mapping[full]
        if window is None:
            kept += int((mapped > 0).sum())
        else:
            moved += int((mapped != window).sum())
    yield Wrong("tombstones", TOMBSTONE, kept, f"{kept} device slots of pool {SWA} are kept by tombstones")
    message = f"{moved} tokens of nodes have other slots of pool {SWA} than their full slots are mapped to"
    yield Wrong("moved", CONSERVED, moved, message)


def _free_list(allocator: Any) -> Any:
    """Pages that are free, released ones included; of states, slots. Empty where a pool keeps no list."""
    import torch

    states = getattr(allocator, "free_slots", None)
    if states is not None:
        return states
    listed = getattr(allocator, "get_all_free_pages", None)
    free = allocator.free_pages if listed is None else listed()
    if free is None:
        return torch.empty(0, dtype=torch.int64)
    if listed is None and allocator.release_pages is not None:
        free = torch.cat((free, allocator.release_pages))
    return free


def _missing(numbers: range, *parts: Any) -> int:
    """How many numbers are in none of the parts."""
    import torch

    return int((~torch.isin(torch.arange(numbers.start, numbers.stop), torch.cat(parts).cpu())).sum())


def _repeats(numbers: Any) -> int:
    return int(numbers.numel() - numbers.unique().numel())


def _common(one: Any, other: Any) -> int:
    import torch

    return int(torch.isin(one, other.to(one.dtype)).sum())
