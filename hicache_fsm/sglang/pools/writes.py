"""Writes: device to host by the controller's copy queue, then host to storage by its backup queue."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hicache_fsm.executor.errors import OwnershipError, PoolExhaustedError
from hicache_fsm.runtime import Undo, WriteCompletion

from .fetches import _taken
from .seats import SeatSide
from .versions import page_hashes

POOL = "kv"


@dataclass(slots=True, eq=False)
class Write:
    """Pages on their way to storage, their host slots, and the lock of their path until they are on the host.

    ``unsettled`` are those that the lifecycle has not settled; ``busy`` while a copy or an I/O thread has them.
    """

    names: list[str]
    slots: torch.Tensor
    lock: tuple[Any, Any] | None
    unsettled: set[str] = field(default_factory=set)
    busy: bool = True


class WriteSide(SeatSide):
    """The effects of the belief machine. ``_writes`` by page, ``_staged`` by acknowledgement of the copy."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._writes: dict[str, Write] = {}
        self._staged: dict[int, Write] = {}
        self._stored: dict[int, Write] = {}
        self._last_write = -(1 << 41)

    def launch_write(self, pool: str, pages: Sequence[Hashable], undo: Undo) -> None:
        if pool != POOL:
            raise OwnershipError(f"there is no pool {pool}: a dense model has {POOL} alone")
        names = [str(page) for page in pages]
        node, source = self._source(names)
        undo(lambda: self.settle_write(pool, names))
        self._last_write -= 1
        lock = node, self.tree.inc_lock_ref(node).to_dec_params()
        try:
            slots = self.controller.write(source, node_id=self._last_write)
        except BaseException:
            self.tree.dec_lock_ref(*lock)
            raise
        if slots is None:
            self.tree.dec_lock_ref(*lock)
            raise PoolExhaustedError(f"host pool: no room to stage {len(names)} pages of writes")
        self.pipeline.write_staged_tokens_ += len(slots)
        write = Write(names, slots, lock, set(names))
        self._staged[self._last_write] = write
        self._writes |= dict.fromkeys(names, write)

    def settle_write(self, pool: str, pages: Sequence[Hashable]) -> None:
        for page in map(str, pages):
            write = self._writes.pop(page, None)
            if write is not None:
                write.unsettled.discard(page)
                self._free_write(write)

    def _source(self, names: Sequence[str]) -> tuple[Any, torch.Tensor]:
        """The deepest node of the path that has these pages, and their slots. Raises ``OwnershipError``."""
        for tokens in self._nodes.values():
            known = page_hashes(tokens, self.page_size)
            if set(names) <= set(known):
                found, size = self.release.match(tokens), self.page_size
                starts = [known.index(name) * size for name in names]
                if len(found.slots) == len(tokens):
                    return found.node, torch.cat([found.slots[start : start + size] for start in starts])
        raise OwnershipError("no node on the device has all pages of this write: plant it first")

    def _drain_writes(self) -> None:
        acks = self.controller.ack_write_queue
        for _ in range(self.tree._count_ready_acks(acks)):
            ack = acks.pop(0)
            ack.finish_event.synchronize()
            for number in ack.node_ids:
                self._on_host(self._staged.pop(number))
        for operation in _taken(self.controller.ack_backup_queue):
            self._on_storage(self._stored.pop(operation.id), int(operation.completed_tokens))

    def _on_host(self, write: Write) -> None:
        if write.lock is not None:
            self.tree.dec_lock_ref(*write.lock)
            write.lock = None
        if not write.unsettled:
            write.busy = False
            self._free_write(write)
            return
        number = self.controller.write_storage(write.slots, [], hash_value=write.names)
        self._stored[number] = write

    def _on_storage(self, write: Write, tokens: int) -> None:
        write.busy = False
        done = write.names[: tokens // self.page_size]
        for ok, names in ((True, done), (False, write.names[len(done) :])):
            told = [name for name in names if name in write.unsettled]
            if told:
                self._post(WriteCompletion(POOL, told, ok))
        self._free_write(write)

    def _free_write(self, write: Write) -> None:
        """Staging goes back as a whole, as upstream's does: once all is settled and no thread has it."""
        if not write.busy and not write.unsettled and len(write.slots):
            self.host.free(write.slots)
            self.pipeline.write_staged_tokens_ -= len(write.slots)
            write.slots = write.slots[:0]

    def _open_writes(self) -> Iterator[Write]:
        """Each write that has host pages, once."""
        found = [*self._writes.values(), *self._staged.values(), *self._stored.values()]
        yield from {id(write): write for write in found}.values()
