"""The full audit: SGLang's own pools and trees, slot by slot, against who owns them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .devicepools import CONSERVED, at_any_time, at_rest
from .hostpools import HostPool, host_owners, host_pools
from .kinds import Kind, total
from .ledger import Ledger
from .sink import Finding

SHOWN = 8
"""How many slots a message names."""


class Auditor:
    """Recounts what the incremental books cannot see: host slots, device locks, pages on their way."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._view = ledger.view
        self._told: dict[str, int] = {}
        self._lost: list[tuple[Any, Any]] = []

    def run(self, now: int) -> Iterator[Finding]:
        """What is wrong and was not told before with the same amount."""
        for name, invariant, kind, amount, message in (*self._host(), *self._device(), *self._writes()):
            if amount and self._told.get(name) != amount:
                yield total(invariant, kind, amount, now, message)
            self._told[name] = amount

    # ---- host slots

    def _host(self) -> Iterator[tuple[str, str, Kind, int, str]]:
        pools = host_pools(self._view)
        owners: dict[str, list[Any]] = {name: [] for pool in pools for name in pool.names}
        for name, slots in host_owners(self._ledger):
            if slots is not None and len(slots) and name in owners:
                owners[name].append(slots)
        self._lost = []
        for pool in pools:
            yield from self._slots_of(pool, [slots for name in pool.names for slots in owners[name]])

    def _slots_of(self, pool: HostPool, owners: list[Any]) -> Iterator[tuple[str, str, Kind, int, str]]:
        import torch

        used, repeated = pool.used()
        message = f"{repeated} host slots{pool.label} were given back twice"
        yield f"repeated{pool.label}", CONSERVED, Kind.HOST_PAGES, repeated, message
        owned = torch.zeros_like(used, dtype=torch.int16)
        for slots in owners:
            owned.index_add_(0, slots.to(torch.int64).cpu(), torch.ones(len(slots), dtype=torch.int16))
        free, lost = (owned > 0) & ~used, used & (owned == 0)
        if not self._view.all_host_owners_known:
            lost = torch.zeros_like(lost)
        for name, mask, what in (
            ("twice", owned > 1, "have two owners"),
            ("loose", free, "are free and owned"),
            ("lost", lost, "are in use and nobody's"),
        ):
            count = int(mask.sum())
            message = f"{count} host slots{pool.label} {what}{self._slots(mask)}"
            yield f"{name}{pool.label}", CONSERVED, Kind.HOST_PAGES, count, message
        if lost.any():
            self._lost.append((pool.pool, lost.nonzero().flatten()))

    @staticmethod
    def _slots(mask: Any) -> str:
        numbers = mask.nonzero().flatten()[:SHOWN].tolist()
        return f": {', '.join(map(str, numbers))}, ..." if numbers else ""

    def free_lost(self) -> int:
        """Give back the host slots that the last run found nobody's; how many.

        Only with no storage read in flight: a read that the books missed may still write to them. With several ranks
        nothing: reads end at different times on each, and all must have the same room.
        """
        lost, self._lost = self._lost, []
        if self._view.ranks > 1 or self._ledger.in_flight or self._view.storage_busy():
            return 0
        for pool, slots in lost:
            pool.free(slots)
        return sum(len(slots) for _, slots in lost)

    # ---- device

    def _device(self) -> Iterator[tuple[str, str, Kind, int, str]]:
        """Between any two passes, and at rest nothing is locked and what is not free is in the tree."""
        view = self._view
        resting = view.at_rest and not view.sessions_hold_kv()
        for wrong in (*at_any_time(view), *(at_rest(view) if resting else ())):
            yield wrong.name, wrong.invariant, Kind.DEVICE, wrong.amount, wrong.message

    # ---- writes

    def _writes(self) -> Iterator[tuple[str, str, Kind, int, str]]:
        pipeline = self._view.pipeline
        if pipeline is None:
            return
        writes = (*pipeline.ongoing_write_through.values(), *pipeline.ongoing_backup.values())
        owned = sum(getattr(write, "occupied_units", len(write.host_indices)) for write in writes)
        surplus = int(pipeline.write_staged_tokens_) - owned
        message = f"{pipeline.write_staged_tokens_} host tokens counted as staged for writes, {owned} owned"
        yield "writes", CONSERVED, Kind.HOST_PAGES, surplus, message
