"""The full audit: SGLang's own pools and trees, slot by slot, against who owns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .ledger import Kind, Ledger, total
from .sink import Finding

SHOWN = 8
"""How many slots a message names."""


class Auditor:
    """Recounts what the incremental books cannot see: host slots, device locks, pages on their way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._view = ledger.view
        self._told: dict[str, int] = {}
        self._lost: Any = None

    def run(self, now: int) -> Iterator[Finding]:
        """What is wrong and was not told before with the same amount."""
        for name, kind, amount, message in (*self._host(), *self._device(), *self._writes()):
            if amount and self._told.get(name) != amount:
                yield total("conservation", kind, amount, now, message)
            self._told[name] = amount

    # ---- host slots

    def _host_owners(self) -> Iterator[tuple[str, Any]]:
        """Who owns host slots of the KV pool: (name, int64 tensor of slot numbers)."""
        tree, pipeline, controller = self._view.tree, self._view.pipeline, self._view.controller
        live = set()
        for key, entry in tree.ongoing_prefetch.items():
            live.add(entry.operation.id)
            if entry.host_indices is not None:
                # the operation's, not the entry's: they are the same slots, trimmed the same way
                yield f"prefetch of {key}", entry.operation.host_indices
        for operation in self._ledger.in_flight.values():
            if operation.id not in live:
                key = self._view.key_of_operation(operation)
                yield f"orphan of {key}", operation.host_indices[operation.completed_tokens :]
        if pipeline is not None:
            for key, hold in pipeline.staged_prefetches.items():
                yield f"hold of {key}", hold.host_indices
            for fill in pipeline.ongoing_buffer_load_back.values():
                yield "copy to the device", fill.host_indices
            for entry in (*pipeline.ongoing_write_through.values(), *pipeline.ongoing_backup.values()):
                yield "write to storage", entry.host_indices
        else:
            for node in self._view.tree_nodes():
                if node.host_indices is not None:
                    yield f"node {node.name}", node.host_indices
        releases = controller.host_mem_release_queue
        if releases is not None:
            with releases.mutex:
                waiting = list(releases.queue)
            for slots in waiting:
                yield "release queue", slots

    def _host(self) -> Iterator[tuple[str, Kind, int, str]]:
        import torch

        self._lost = None
        pool = self._view.host_pool()
        used = getattr(pool, "slot_used", None)
        if used is None:
            return
        owned = torch.zeros_like(used, dtype=torch.int16)
        for _, slots in self._host_owners():
            if slots is not None and len(slots):
                owned.index_add_(0, slots.to(torch.int64).cpu(), torch.ones(len(slots), dtype=torch.int16))
        twice = int((owned > 1).sum())
        yield "twice", Kind.HOST_PAGES, twice, f"{twice} host slots have two owners{self._slots(owned > 1)}"
        free = (owned > 0) & ~used
        loose = int(free.sum())
        yield "loose", Kind.HOST_PAGES, loose, f"{loose} host slots are free and owned{self._slots(free)}"
        lost = used & (owned == 0)
        count = int(lost.sum()) if self._view.all_host_owners_known else 0
        if count:
            self._lost = lost.nonzero().flatten()
        yield "lost", Kind.HOST_PAGES, count, f"{count} host slots are in use and nobody's{self._slots(lost)}"

    @staticmethod
    def _slots(mask: Any) -> str:
        numbers = mask.nonzero().flatten()[:SHOWN].tolist()
        return f": {', '.join(map(str, numbers))}, ..." if numbers else ""

    def free_lost(self) -> int:
        """Give back the host slots that the last run found nobody's; how many.

        Only with no storage read in flight: a read that the books missed may still write to them.
        """
        lost, self._lost = self._lost, None
        if lost is None or self._ledger.in_flight or self._view.storage_busy():
            return 0
        self._view.host_pool().free(lost)
        return len(lost)

    # ---- device

    def _device(self) -> Iterator[tuple[str, Kind, int, str]]:
        """At rest nothing is locked, and what is not free is in the tree."""
        view = self._view
        tree, allocator = view.tree, view.scheduler.token_to_kv_pool_allocator
        if not view.at_rest or view.sessions_hold_kv() or view.hybrid:
            return
        locked = int(tree.protected_size())
        yield "locked", Kind.DEVICE, locked, f"{locked} device tokens are locked in an engine at rest"
        kept = int(allocator.available_size()) + int(tree.evictable_size()) + locked
        lost = int(allocator.size) - kept
        yield "device", Kind.DEVICE, lost, f"{lost} device tokens are neither free nor in the tree, at rest"
        held = sum(node.host_locks for node in view.tree_nodes())
        yield "host_locks", Kind.DEVICE, held, f"{held} host locks are held on nodes in an engine at rest"

    # ---- writes

    def _writes(self) -> Iterator[tuple[str, Kind, int, str]]:
        pipeline = self._view.pipeline
        if pipeline is None:
            return
        writes = (*pipeline.ongoing_write_through.values(), *pipeline.ongoing_backup.values())
        owned = sum(getattr(write, "occupied_units", len(write.host_indices)) for write in writes)
        surplus = int(pipeline.write_staged_tokens_) - owned
        message = f"{pipeline.write_staged_tokens_} host tokens counted as staged for writes, {owned} owned"
        yield "writes", Kind.HOST_PAGES, surplus, message
