"""Slots of one pool: who owns each, and who may still read or write what its owner gave back."""

from collections.abc import Iterable
from typing import Any, Final, Literal, Protocol

from hicache_fsm.executor.backend import torch
from hicache_fsm.executor.errors import (
    DoubleFreeError,
    OwnershipError,
    PoolExhaustedError,
    UseAfterFreeError,
)

State = Literal["held", "leaving", "free"]

NOBODY: Final = 0


class Borrower(Protocol):
    """I/O that reads or writes slots."""

    def replace(self, block: "Block", halves: "Iterable[Block]") -> None:
        """A block that it has was split."""


class Block:
    """Slots of one pool with one owner.

    `held`: the owner has it.  `leaving`: the owner gave it back, and I/O still reads or writes it.  `free`: its
    slots are in the pool's free list again, or were handed on to the two halves of a split.  `borrowers` is the
    I/O under way on it.
    """

    __slots__ = ("_pool", "_slots", "borrowers", "number", "owner", "state")

    def __init__(self, pool: "SlotPool", number: int, slots: Any, owner: str) -> None:
        self._pool = pool
        self._slots = slots
        self.number = number
        self.owner = owner
        self.borrowers: set[Borrower] = set()
        self.state: State = "held"

    def __len__(self) -> int:
        return len(self._slots)

    def __repr__(self) -> str:
        return f"<{len(self)} {self._pool.name} slots of {self.owner}, {self.state}>"

    @property
    def slots(self) -> Any:
        """The slots' numbers, shape (length,), int64.  Raises UseAfterFreeError once they are free."""
        if self.state == "free":
            raise UseAfterFreeError(f"{self!r} are used after they were freed")
        return self._slots

    def lend(self, borrower: Borrower) -> None:
        """I/O begins on the slots.  Raises UseAfterFreeError unless they are held."""
        if self.state != "held":
            raise UseAfterFreeError(f"{self!r} cannot be lent")
        self.borrowers.add(borrower)

    def returned(self, borrower: Borrower) -> None:
        """That I/O has ended; slots that were only waiting for it become free (#31668).

        Raises UseAfterFreeError if they were freed under it.
        """
        if self.state == "free" or borrower not in self.borrowers:
            raise UseAfterFreeError(f"{self!r} were freed while I/O was under way on them")
        self.borrowers.discard(borrower)
        if self.state == "leaving" and not self.borrowers:
            self._pool._reclaim(self)

    def release(self) -> None:
        """The owner gives the slots back.  Raises DoubleFreeError the second time."""
        if self.state != "held":
            raise DoubleFreeError(f"{self!r} are given back twice")
        if self.borrowers:
            self.state = "leaving"
        else:
            self._pool._reclaim(self)

    def pass_on(self, owner: str) -> None:
        """Somebody else owns the slots from here on.  Raises UseAfterFreeError unless they are held."""
        if self.state != "held":
            raise UseAfterFreeError(f"{self!r} cannot be passed on to {owner}")
        self.owner = owner

    def split(self, count: int) -> "tuple[Block, Block]":
        """The `count` leading slots and the rest, each a block of its own under the same I/O.

        Raises UseAfterFreeError unless the block is held, ValueError for more slots than it has.
        """
        if self.state != "held":
            raise UseAfterFreeError(f"{self!r} cannot be split")
        if not 0 <= count <= len(self):
            raise ValueError(f"{count} of {self!r}")
        return self._pool._split(self, count)


class SlotPool:
    """Slots 0 to capacity - 1; each is free or in exactly one block.

    The free list is a stack in a tensor.  A block gets a copy of its part, never a view: an index tensor that
    aliased the free list would change under its reader (#31296).
    """

    def __init__(self, name: str, capacity: int, device: Any = "cpu") -> None:
        if capacity < 0:
            raise ValueError(f"{name}: {capacity} slots")
        self.name = name
        self.capacity = capacity
        self.free = capacity
        self._stack = torch.arange(capacity - 1, -1, -1, device=device)
        self._owners = torch.full((capacity,), NOBODY, dtype=torch.int64, device=device)
        self._blocks: dict[int, Block] = {}
        self._numbered = NOBODY

    def take(self, count: int, owner: str) -> Block:
        """A block of so many slots.  Raises PoolExhaustedError for more than are free."""
        if count > self.free:
            raise PoolExhaustedError(f"{owner} wants {count} {self.name} slots, {self.free} are free")
        slots = self._stack[self.free - count : self.free].clone()
        if bool((self._owners[slots] != NOBODY).any()):
            raise OwnershipError(f"the free list of {self.name} has slots that are owned")
        self.free -= count
        return self._block(slots, owner)

    def owned(self, slots: Any) -> Any:
        """Which of the slots are held or leaving, shape (length,), bool."""
        return self._owners[slots] != NOBODY

    def blocks(self) -> list[Block]:
        """Every block that is held or leaving."""
        return list(self._blocks.values())

    def audit(self) -> list[str]:
        """What is wrong with the books, recounted: one line each.  Costs the capacity."""
        found = []
        seen = torch.zeros(self.capacity, dtype=torch.int64, device=self._stack.device)
        for slots in (self._stack[: self.free], *(block._slots for block in self._blocks.values())):
            seen.index_add_(0, slots, torch.ones_like(slots))
        if lost := int((seen == 0).sum()):
            found.append(f"{self.name}: {lost} slots are neither free nor owned")
        if twice := int((seen > 1).sum()):
            found.append(f"{self.name}: {twice} slots are free or owned more than once")
        for block in self._blocks.values():
            if bool((self._owners[block._slots] != block.number).any()):
                found.append(f"{self.name}: {block!r} has slots of somebody else")
            if block.state == "free":
                found.append(f"{self.name}: {block!r} is still in the books")
        return found

    def _block(self, slots: Any, owner: str) -> Block:
        self._numbered += 1
        block = self._blocks[self._numbered] = Block(self, self._numbered, slots, owner)
        self._owners[slots] = block.number
        return block

    def _split(self, block: Block, count: int) -> tuple[Block, Block]:
        del self._blocks[block.number]
        block.state = "free"
        halves = tuple(
            self._block(part.clone(), block.owner) for part in (block._slots[:count], block._slots[count:])
        )
        for borrower in block.borrowers:
            for half in halves:
                half.borrowers.add(borrower)
            borrower.replace(block, halves)
        return halves[0], halves[1]

    def _reclaim(self, block: Block) -> None:
        if bool((self._owners[block._slots] != block.number).any()):
            raise DoubleFreeError(f"{block!r} has slots that it does not own")
        count = len(block)
        self._owners[block._slots] = NOBODY
        self._stack[self.free : self.free + count] = block._slots
        self.free += count
        del self._blocks[block.number]
        block.state = "free"
