"""Seats of admitted requests on the device, what holds are copied to, and the nodes that seats become."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

from hicache_fsm.executor.errors import (
    OwnershipError,
    PoolExhaustedError,
    StillUnderIoError,
    UseAfterFreeError,
)
from hicache_fsm.runtime import AttemptKey, Undo

from .fetches import FetchSide
from .versions import tree_key


@dataclass(slots=True, eq=False)
class Seat:
    """A request's whole prompt on the device: a locked ``node`` with ``prefix`` slots, then ``slots`` of its own.

    ``pages`` are host slots that are being copied in, ``consumed`` once a hold was; ``over`` once the request left
    while that copy was under way.
    """

    node: Any
    lock: Any
    prefix: torch.Tensor
    slots: torch.Tensor
    pages: torch.Tensor | None = None
    consumed: bool = False
    over: bool = False


class SeatSide(FetchSide):
    """The effects of admission and of the node machine."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._seats: dict[AttemptKey, Seat] = {}
        self._copies: dict[int, Seat] = {}
        self._last_copy = 0

    # ---- effects

    def consume_hold(self, key: AttemptKey, pages: int) -> None:
        seat = self._seats.get(key)
        if seat is None:
            raise OwnershipError(f"{key} has no seat on the device: call seat before admit")
        if seat.consumed:
            return
        parts = sorted(self._holds.get(key, {}).values(), key=lambda part: part.start)
        held = torch.cat([part.slots for part in parts])
        if len(held) != pages * self.page_size:
            raise UseAfterFreeError(f"the hold of {key} has {len(held)} tokens, not {pages} pages")
        covered = len(seat.prefix) - parts[0].start
        if covered < 0:
            raise OwnershipError(f"the device lost the base of the hold of {key}: call shrink")
        # a prefix that grew meanwhile is not copied over
        loaded = held[covered:]
        if len(loaded):
            self._copy(seat, loaded, held)
        else:
            self._free_host(held)
        seat.consumed = True
        del self._holds[key]

    def claim(self, node: Hashable, owner: Hashable, undo: Undo) -> None:
        raise OwnershipError("in buffer_only mode the host keeps no copy to load a node back from")

    def unclaim(self, node: Hashable, owner: Hashable) -> None:
        """Nothing is ever claimed."""

    def free_swa(self, node: Hashable) -> None:
        raise OwnershipError("a dense pool has no SWA side")

    def free_full(self, node: Hashable) -> None:
        raise OwnershipError("a dense pool has one side")

    def free_both(self, node: Hashable) -> None:
        """Only what was planted here is known by name: any other node is gone already, or not this executor's."""
        tokens = self._nodes.get(node)
        if tokens is None:
            return
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        with self._all_locked_but(node):
            for _ in range(len(tokens) // self.page_size):
                if len(self.release.match(tokens).slots) < len(tokens):
                    break
                self.tree.evict(EvictParams(num_tokens=self.page_size))
        if len(self.release.match(tokens).slots) == len(tokens):
            raise OwnershipError(f"node {node} is locked, or has nodes below it")
        del self._nodes[node]

    # ---- the embedder's

    def seat(self, key: AttemptKey) -> torch.Tensor:
        """The slots of the whole pages of a prompt, one a token, for a request about to be admitted.

        The leading ones are the tree's, which the seat locks; the rest are the request's own. Raises
        ``PoolExhaustedError``, with nothing locked, and ``OwnershipError`` for a second seat.
        """
        if key in self._seats:
            raise OwnershipError(f"{key} has a seat already")
        found = self._live(key)
        wanted = len(self._span(key)) - len(found.slots)
        slots = self.allocator.alloc(wanted) if wanted else torch.empty(0, dtype=torch.int64)
        if slots is None:
            free = int(self.allocator.available_size())
            raise PoolExhaustedError(f"device pool: {wanted} tokens wanted, {free} free: evict a node first")
        lock = self.tree.inc_lock_ref(found.node).to_dec_params()
        self._seats[key] = Seat(found.node, lock, found.slots, slots)
        return torch.cat([found.slots, slots])

    def ready(self, key: AttemptKey) -> bool:
        """Whether the request's hold has reached the device."""
        return self._seats[key].pages is None

    def plant(self, key: AttemptKey, pages: int) -> str:
        """Insert the leading ``pages`` of a seat into the tree; the name of the node, which is its last page's.

        Slots that the tree had meanwhile are freed by it, and the seat goes on with the tree's. Raises
        ``OwnershipError`` without a seat, ``StillUnderIoError`` while its hold is being copied.
        """
        seat, tokens = self._seats.get(key), self._span(key)[: pages * self.page_size]
        if seat is None or not 0 < len(tokens) == pages * self.page_size:
            raise OwnershipError(f"{key} has no seat of {pages} pages")
        if seat.pages is not None:
            raise StillUnderIoError(f"the hold of {key} has not reached the device")
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams

        whole = torch.cat([seat.prefix, seat.slots])
        value = whole[: len(tokens)].clone()
        self.tree.insert(InsertParams(key=tree_key(tokens), value=value, prev_prefix_len=len(seat.prefix)))
        # no deeper than what was planted: slots beyond it stay the seat's own
        found = self.release.match(tokens)
        old = seat.node, seat.lock
        seat.node, seat.lock = found.node, self.tree.inc_lock_ref(found.node).to_dec_params()
        self.tree.dec_lock_ref(*old)
        seat.prefix, seat.slots = found.slots, whole[len(found.slots) :]
        name = self.names(key)[pages - 1]
        self._nodes[name] = tuple(tokens)
        return name

    def unseat(self, key: AttemptKey) -> None:
        """The request leaves the device; slots that are being copied to go back when the copy has ended."""
        seat = self._seats.pop(key, None)
        if seat is None:
            return
        seat.over = True
        if seat.pages is None:
            self._vacate(seat)

    # ---- copies

    def _copy(self, seat: Seat, loaded: torch.Tensor, held: torch.Tensor) -> None:
        self._last_copy -= 1
        number, queue = self._last_copy, self.controller.load_queue
        try:
            self.release.queue_load(loaded, seat.slots[: len(loaded)], number)
            self.controller.start_loading()
        except BaseException:
            queue[:] = [queued for queued in queue if number not in queued.node_ids]
            raise
        seat.pages = held
        self._copies[number] = seat

    def _drain_copies(self) -> None:
        acks = self.controller.ack_load_queue
        for _ in range(self.tree._count_ready_acks(acks)):
            ack = acks.pop(0)
            ack.finish_event.synchronize()
            for number in ack.node_ids:
                self._copied(self._copies.pop(number))

    def _copied(self, seat: Seat) -> None:
        if seat.pages is not None:
            self._free_host(seat.pages)
            seat.pages = None
        if seat.over:
            self._vacate(seat)

    def _vacate(self, seat: Seat) -> None:
        if len(seat.slots):
            self.allocator.free(seat.slots)
        self.tree.dec_lock_ref(seat.node, seat.lock)
