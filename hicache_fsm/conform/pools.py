"""Pools that a driven lifecycle acts on: they keep books of their own, against which its books are held."""

from collections.abc import Hashable, Sequence

from hicache_fsm.runtime import Anchor, AttemptKey, NullExecutor, Undo

__all__ = ["Anchor", "HostPool", "SlotPools", "WriteQueue"]

Node = Hashable


class HostPool(NullExecutor):
    """Counts host pages by their owner: an operation, a hold, or a hold being copied to the device."""

    def __init__(self, pages: int) -> None:
        self.size = pages
        self.operations: dict[int, int] = {}
        self.holds: dict[str, int] = {}
        self.filling: dict[str, int] = {}
        self.locked: dict[AttemptKey, int] = {}

    @property
    def occupied(self) -> int:
        """Pages in use."""
        return sum(sum(owned.values()) for owned in (self.operations, self.holds, self.filling))

    @property
    def free(self) -> int:
        """Pages that nobody owns."""
        return self.size - self.occupied

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None:
        self.operations[op] = pages

    def stage_hold(self, key: AttemptKey, op: int, pages: int) -> None:
        self.operations.pop(op)
        self._stage(key, pages)

    def free_pages(self, key: AttemptKey, op: int) -> None:
        self.operations.pop(op)

    def cut_operation(self, key: AttemptKey, op: int, pages: int) -> None:
        self.operations[op] -= pages
        self._stage(key, pages)

    def free_orphan_pages(self, op: int) -> None:
        self.operations.pop(op, None)

    def consume_hold(self, key: AttemptKey, pages: int) -> None:
        self.filling[key.rid] = self.filling.get(key.rid, 0) + self.holds.pop(key.rid, 0)

    def release_hold(self, key: AttemptKey, pages: int) -> None:
        self.holds.pop(key.rid, None)

    def lock_anchor(self, key: AttemptKey, node: Node, tokens: int, undo: Undo) -> None:
        self.locked[key] = tokens

    def unlock_anchor(self, key: AttemptKey, node: Node, tokens: int) -> None:
        self.locked.pop(key)

    def _stage(self, key: AttemptKey, pages: int) -> None:
        self.holds[key.rid] = self.holds.get(key.rid, 0) + pages


class SlotPools(NullExecutor):
    """Which nodes own a slot of the full and of the SWA pool; `free` counts the others."""

    def __init__(self, full: int, swa: int, nodes: Sequence[Node]) -> None:
        self.full = dict.fromkeys(nodes, 1)
        self.swa = dict.fromkeys(nodes, 1)
        self.full_free = full - len(nodes)
        self.swa_free = swa - len(nodes)

    def claim(self, node: Node, owner: Hashable, undo: Undo) -> None:
        self.full_free -= 1 - self.full[node]
        self.swa_free -= 1 - self.swa[node]
        self.full[node] = self.swa[node] = 1

    def free_full(self, node: Node) -> None:
        self.full[node] = 0
        self.full_free += 1

    def free_swa(self, node: Node) -> None:
        self.swa[node] = 0
        self.swa_free += 1

    def free_both(self, node: Node) -> None:
        self.free_full(node)
        self.free_swa(node)


class WriteQueue(NullExecutor):
    """Writes in flight, by (pool, page)."""

    def __init__(self) -> None:
        self.writing: set[tuple[str, Hashable]] = set()

    def launch_write(self, pool: str, pages: Sequence[Hashable], undo: Undo) -> None:
        self.writing.update((pool, page) for page in pages)

    def settle_write(self, pool: str, pages: Sequence[Hashable]) -> None:
        self.writing.difference_update((pool, page) for page in pages)
