"""The small world around a driven lifecycle: host slots, a device tree, a storage, each with books of its own."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hicache_fsm.runtime import AttemptKey, NullExecutor, Undo

Owner = tuple[str, Hashable]
Node = Hashable


class HostSlots:
    """Numbered host pages, each with one owner.  What must not happen is noted in `faults` and then done."""

    def __init__(self, size: int) -> None:
        self.faults: list[str] = []
        self._free = list(range(size))
        self._owned: dict[Owner, list[int]] = {}
        self._io: set[int] = set()

    @property
    def free(self) -> int:
        """Slots that nobody owns."""
        return len(self._free)

    def of(self, owner: Owner) -> int:
        """Slots of one owner."""
        return len(self._owned.get(owner, ()))

    def total(self, kind: str) -> int:
        """Slots of all owners of a kind: op, hold, fill."""
        return sum(len(slots) for (each, _), slots in self._owned.items() if each == kind)

    def take(self, owner: Owner, count: int) -> None:
        """Give `owner` slots that are about to be written."""
        if count > len(self._free):
            self.faults.append(f"conservation: {count} slots taken of {len(self._free)} free")
            count = len(self._free)
        slots, self._free = self._free[:count], self._free[count:]
        self._owned.setdefault(owner, []).extend(slots)
        self._io.update(slots)

    def untake(self, owner: Owner) -> None:
        """No I/O began: the slots are free again."""
        self.arrived(owner)
        self.give(owner)

    def arrived(self, owner: Owner, count: int | None = None) -> None:
        """The I/O on the owner's first `count` slots has ended, on all of them if None."""
        self._io.difference_update(self._owned.get(owner, [])[:count])

    def move(self, owner: Owner, heir: Owner, count: int | None = None) -> None:
        """The owner's first `count` slots, all if None, are the heir's."""
        slots = self._owned.pop(owner, [])
        moved, kept = (slots, []) if count is None else (slots[:count], slots[count:])
        if count is not None and count > len(slots):
            self.faults.append(f"conservation: {count} slots handed over of {len(slots)} owned")
        if self._io.intersection(moved):
            self.faults.append(f"conservation: {owner[0]} {owner[1]} handed over a slot under I/O")
        if moved:
            self._owned.setdefault(heir, []).extend(moved)
        if kept:
            self._owned[owner] = kept

    def give(self, owner: Owner) -> int:
        """All the owner's slots are free.  Returns how many they were."""
        slots = self._owned.pop(owner, [])
        if self._io.intersection(slots):
            self.faults.append(f"conservation: {owner[0]} {owner[1]} freed a slot under I/O (#31668)")
            self._io.difference_update(slots)
        self._free += slots
        return len(slots)


class DeviceTree:
    """Which pages are on the device, each below its parent; a lock on a node holds its whole path."""

    def __init__(self, prompts: Iterable[Sequence[str]], resident: Iterable[str]) -> None:
        self._parent: dict[str, str] = {}
        for prompt in prompts:
            self._parent |= dict(zip(prompt[1:], prompt, strict=False))
        self.resident = set(resident)
        self.locks: Counter[str] = Counter()
        self.full = set(self.resident)
        self.swa = set(self.resident)

    def depth(self, prompt: Sequence[str]) -> int:
        """How many leading pages of the prompt are on the device."""
        for count, page in enumerate(prompt):
            if page not in self.resident:
                return count
        return len(prompt)

    def add(self, pages: Sequence[str]) -> str:
        """Put the pages there, each below the one before.  Returns the page whose parent is missing, or nothing."""
        for before, page in zip([self._parent.get(pages[0], ""), *pages], pages, strict=False):
            if before and before not in self.resident:
                return page
            self._parent.setdefault(page, before)
            self.resident.add(page)
            self.full.add(page)
            self.swa.add(page)
        return ""

    def below(self, page: str) -> list[str]:
        """The page and what hangs below it on the device, the deepest first."""
        found = [page]
        for each in found:
            found += [child for child in sorted(self.resident) if self._parent.get(child) == each]
        return found[::-1]

    def path(self, page: str) -> list[str]:
        """The page and everything above it."""
        found = [page]
        while parent := self._parent.get(found[-1], ""):
            found.append(parent)
        return found

    def locked(self, page: str) -> bool:
        """Whether a lock holds the page or anything below it."""
        held = {each for node, count in self.locks.items() if count > 0 for each in self.path(node)}
        return bool(held.intersection(self.below(page)))


@dataclass(slots=True)
class Storage:
    """What is stored, what storage lost by itself, which writes are in flight, and how often it was emptied."""

    pages: set[str]
    lost: set[str] = field(default_factory=set)
    writing: set[str] = field(default_factory=set)
    emptied: int = 0

    def leading(self, span: Sequence[str]) -> int:
        """How many leading pages of the span are stored."""
        return next((count for count, page in enumerate(span) if page not in self.pages), len(span))

    def add(self, pages: Iterable[str]) -> None:
        """The pages are stored."""
        self.pages.update(pages)
        self.lost.difference_update(pages)

    def lose(self, pages: Iterable[str]) -> None:
        """The pages are gone, and nobody is told."""
        self.lost.update(self.pages.intersection(pages))
        self.pages.difference_update(pages)

    def empty(self) -> None:
        """Nothing is stored, and the writes in flight go nowhere."""
        self.pages.clear()
        self.lost.clear()
        self.writing.clear()
        self.emptied += 1


class Pools(NullExecutor):
    """The executor of a driven lifecycle: what it decides happens to these pools."""

    def __init__(self, slots: HostSlots, tree: DeviceTree, storage: Storage) -> None:
        self.slots, self.tree, self.storage = slots, tree, storage
        self.locked: dict[AttemptKey, int] = {}
        self.asked: list[tuple[AttemptKey, int]] = []

    def ask(self, key: AttemptKey, op: int, tokens: int, undo: Undo) -> None:
        self.asked.append((key, op))

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None:
        undo(lambda: self.slots.untake(("op", op)))
        self.slots.take(("op", op), pages)

    def stage_hold(self, key: AttemptKey, op: int, pages: int) -> None:
        self.slots.move(("op", op), ("hold", key), pages)
        self.slots.give(("op", op))

    def free_pages(self, key: AttemptKey, op: int) -> None:
        self.slots.give(("op", op))

    def cut_operation(self, key: AttemptKey, op: int, pages: int) -> None:
        self.slots.move(("op", op), ("hold", key), pages)

    def free_orphan_pages(self, op: int) -> None:
        self.slots.give(("op", op))

    def consume_hold(self, key: AttemptKey, pages: int) -> None:
        self.slots.move(("hold", key), ("fill", key))

    def release_hold(self, key: AttemptKey, pages: int) -> None:
        self.slots.give(("hold", key))

    def lock_anchor(self, key: AttemptKey, node: Node, tokens: int, undo: Undo) -> None:
        undo(lambda: self.unlock_anchor(key, node, tokens))
        self.locked[key] = self.locked.get(key, 0) + tokens
        self.tree.locks[str(node)] += 1

    def unlock_anchor(self, key: AttemptKey, node: Node, tokens: int) -> None:
        if self.locked.pop(key, None) is None or self.tree.locks[str(node)] == 0:
            self.slots.faults.append(f"pin-owned: {key} unlocked {node}, which it does not hold")
            return
        self.tree.locks[str(node)] -= 1

    def launch_write(self, pool: str, pages: Sequence[Hashable], undo: Undo) -> None:
        names = named(pool, pages)
        undo(lambda: self.storage.writing.difference_update(names))
        self.storage.writing.update(names)

    def claim(self, node: Node, owner: Hashable, undo: Undo) -> None:
        self.tree.full.add(str(node))
        self.tree.swa.add(str(node))

    def free_swa(self, node: Node) -> None:
        if str(node) not in self.tree.swa:
            self.slots.faults.append(f"tombstone-once: the SWA side of {node} is freed again (#36637)")
        self.tree.swa.discard(str(node))

    def free_full(self, node: Node) -> None:
        if str(node) not in self.tree.full:
            self.slots.faults.append(f"tombstone-once: the full side of {node} is freed again")
        self.tree.full.discard(str(node))

    def free_both(self, node: Node) -> None:
        self.free_full(node)
        self.free_swa(node)


def named(pool: str, pages: Sequence[Hashable]) -> list[str]:
    """Pages of a pool under their names: `p1` of the KV pool, `swa.p1` of another."""
    return [str(page) if pool == "kv" else f"{pool}.{page}" for page in pages]


def by_pool(names: Iterable[str]) -> Mapping[str, list[str]]:
    """The reverse: the pages of each pool, in order."""
    pools: dict[str, list[str]] = {}
    for name in names:
        pool, dot, page = name.partition(".")
        pools.setdefault(pool if dot else "kv", []).append(page if dot else name)
    return pools
