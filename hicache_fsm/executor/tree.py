"""Nodes of the radix tree: their slots on the device, their copy on the host, locks and load-backs."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hicache_fsm.executor.core import raise_copy_error
from hicache_fsm.executor.device import Span
from hicache_fsm.executor.errors import OwnershipError, StillUnderIoError
from hicache_fsm.executor.fetches import FetchSide
from hicache_fsm.executor.lanes import Job
from hicache_fsm.executor.slots import Block
from hicache_fsm.executor.writes import WriteSide
from hicache_fsm.runtime import Anchor, AttemptKey, Undo
from hicache_fsm.runtime.attempt import Node


@dataclass(slots=True, eq=False)
class Claim:
    """A load-back under way; `sides` are what it took."""

    owner: Hashable
    sides: tuple[str, ...]
    job: Job | None = None


@dataclass(slots=True, eq=False)
class Planted:
    """A node: its pages from the root on, its slots on the device if any, its pages on the host if any."""

    node: Node
    names: tuple[str, ...]
    span: Span | None
    host: Block | None = None
    claim: Claim | None = None


class TreeSide(FetchSide, WriteSide):
    """The effects of the node and pin machines.

    `lost` are attempts that have nothing to follow any more and are still to be told. `_nodes` is in order of use, the
    longest unused first.
    """

    lost: dict[AttemptKey, None]

    _nodes: dict[Node, Planted]
    _places: dict[str, dict[Planted, int]]
    _locks: dict[Node, dict[AttemptKey, int]]

    def _open_books(self) -> None:
        super()._open_books()
        self.lost, self._nodes, self._places, self._locks = {}, {}, {}, {}

    def lock_anchor(self, key: AttemptKey, node: Node, tokens: int, undo: Undo) -> None:
        undo(lambda: self.unlock_anchor(key, node, tokens))
        self._locks.setdefault(node, {})[key] = tokens

    def unlock_anchor(self, key: AttemptKey, node: Node, tokens: int) -> None:
        holders = self._locks.get(node, {})
        holders.pop(key, None)
        if not holders:
            self._locks.pop(node, None)

    def claim(self, node: Node, owner: Hashable, undo: Undo) -> None:
        planted = self._nodes.get(node)
        if planted is None or planted.host is None:
            raise OwnershipError(f"node {node} has no copy on the host to load back")
        if planted.claim is not None:
            raise OwnershipError(f"node {node} is being loaded by {planted.claim.owner} (#35931)")
        undo(lambda: self._give_up(planted))
        tokens, name = len(planted.names) * self.sizes.page_size, f"node {node}"
        if planted.span is None:
            planted.claim = Claim(owner, self.parts)
            planted.span = self.device.take(tokens, name)
        else:
            planted.claim = Claim(owner, tuple(part for part in self.parts if part == "swa"))
            self.device.take_swa(planted.span, tokens, name)
        sides = self._sides(planted.span)
        work = [(part, planted.host.slots, sides[part].slots) for part in planted.claim.sides]
        lent = [planted.host, *(sides[part] for part in planted.claim.sides)]
        job = Job(partial(self._to_device, work), partial(self._loaded, node, planted), lent)
        planted.claim.job = self._start(self.copies, job)
        self._place(planted)

    def unclaim(self, node: Node, owner: Hashable) -> None:
        planted = self._nodes.get(node)
        if planted is None or planted.claim is None:
            return
        if planted.claim.job is not None:
            raise StillUnderIoError(f"the copy of node {node} has not been acknowledged")
        planted.claim = None

    def free_swa(self, node: Node) -> None:
        planted = self._unlocked(node)
        if planted is not None and planted.span is not None and planted.span.swa is not None:
            self.device.free_swa(planted.span)

    def free_both(self, node: Node) -> None:
        planted = self._unlocked(node)
        if planted is not None and planted.span is not None:
            self.device.free(planted.span)
            self._left(node, planted)

    def free_full(self, node: Node) -> None:
        planted = self._unlocked(node)
        if planted is not None and planted.span is not None:
            self.device.free_full(planted.span)
            self._left(node, planted)

    def match(self, key: AttemptKey) -> tuple[Anchor | None, int]:
        """The node that has most of the prompt's leading pages, and how many tokens `issue` is to ask for.

        The anchor has the tokens that a pin locks: the whole node's. What a hold has is not asked for again.
        """
        node, pages = self._matched(key)
        hold = self._holds.get(key)
        missing = len(self._chain(key)) - (pages if hold is None else hold.end)
        anchor = None if node is None else Anchor(node.node, len(node.names) * self.sizes.page_size)
        return anchor, missing * self.sizes.page_size

    def stranded(self) -> list[AttemptKey]:
        """The attempts whose hold, question or read follows what the device has no more.

        Costs a `match` for each that has one of these.
        """
        starts = {fetch.key: fetch.start for fetch in self._fetches.values() if not fetch.orphan}
        starts |= {key: hold.start for key, hold in self._holds.items()}
        return [key for key, start in starts.items() if start > self._matched(key)[1]]

    def seat(self, key: AttemptKey, tokens: int) -> Span:
        """Device slots for all `tokens` of a request about to be admitted; what nodes have of it is copied in.

        Raises PoolExhaustedError; OwnershipError for a second seat.
        """
        span = super().seat(key, tokens)
        node, pages = self._matched(key)
        if node is not None and node.span is not None:
            known = min(pages * self.sizes.page_size, tokens)
            sides = self._sides(span)
            for part, block in self._sides(node.span).items():
                self.device.copy(part, block.slots[:known], sides[part].slots[:known])
            self._seats[key].known = known
        return span

    def nodes(self) -> list[Node]:
        """Every node, on the device or on the host, the longest unused first."""
        return list(self._nodes)

    def evictable(self) -> list[Node]:
        """Nodes on the device that nobody locks or loads, the longest unused first."""
        return [
            node
            for node, planted in self._nodes.items()
            if planted.span is not None and planted.claim is None and node not in self._locks
        ]

    def plant(self, key: AttemptKey, node: Node, names: Sequence[str]) -> None:
        """The leading pages of a request's seat become a node of the tree.

        Raises OwnershipError for a request without a seat or a node that is there, ValueError for more pages
        than the seat has.
        """
        seat = self._seats.get(key)
        if seat is None or seat.job is not None or node in self._nodes:
            raise OwnershipError(f"the seat of {key} cannot become node {node} now")
        span, seat.span = seat.span.split(len(names) * self.sizes.page_size)
        span.pass_on(f"node {node}")
        self._nodes[node] = Planted(node, tuple(names), span)
        self._place(self._nodes[node])

    def keep_on_host(self, node: Node) -> None:
        """Copy a node to host pages, from where `claim` loads it back.  Raises PoolExhaustedError."""
        planted = self._nodes.get(node)
        if planted is None or planted.span is None or len(planted.span.blocks) < len(self.parts):
            raise OwnershipError(f"node {node} is not whole on the device")
        if planted.host is not None:
            return
        planted.host = self.host.slots.take(len(planted.names), f"copy of node {node}")
        work = [(part, side.slots, planted.host.slots) for part, side in self._sides(planted.span).items()]
        job = Job(partial(self._to_host, work), raise_copy_error, [planted.host, *planted.span.blocks])
        self._start(self.copies, job)

    def drop_from_host(self, node: Node) -> None:
        """Give a node's host copy back; pages that are being copied go back when the copy has ended."""
        planted = self._nodes.get(node)
        if planted is not None and planted.host is not None:
            planted.host.release()
            planted.host = None
            self._drop_if_nowhere(node, planted)

    def span_of(self, node: Node) -> Span | None:
        """The node's slots on the device."""
        planted = self._nodes.get(node)
        return None if planted is None else planted.span

    def locked(self, node: Node) -> bool:
        """Whether a holder locks the node: it may not be evicted."""
        return node in self._locks

    @property
    def locked_tokens(self) -> int:
        """Tokens that all holders lock together, per holder: what the lifecycle counts as pinned."""
        return sum(tokens for holders in self._locks.values() for tokens in holders.values())

    def _matched(self, key: AttemptKey) -> tuple[Planted | None, int]:
        """The node that has most of a prompt's leading pages, whole on the device, and how many it has."""
        chain = tuple(self._chain(key))
        for index in reversed(range(len(chain))):
            for node, place in self._places.get(chain[index], {}).items():
                if place == index and self._whole(node) and node.names[: index + 1] == chain[: index + 1]:
                    self._nodes[node.node] = self._nodes.pop(node.node)
                    return node, index + 1
        return None, 0

    def _whole(self, node: Planted) -> bool:
        return node.span is not None and node.claim is None and len(node.span.blocks) == len(self.parts)

    def _sides(self, span: Span) -> dict[str, Block]:
        return {part: block for part, block in (("kv", span.full), ("swa", span.swa)) if block is not None}

    def _source(self, part: str, name: str) -> tuple[Block, object]:
        size = self.sizes.page_size
        for planted, index in self._places.get(name, {}).items():
            block = self._sides(planted.span).get(part) if planted.span is not None else None
            if block is not None and (planted.claim is None or part not in planted.claim.sides):
                return block, block.slots[index * size : (index + 1) * size]
        raise OwnershipError(f"page {name} of {part} is not on the device")

    def _to_host(self, work: Sequence[tuple[str, object, object]], job: Job) -> None:
        for part, slots, pages in work:
            self.host.from_device(self.device, part, slots, pages)

    def _loaded(self, node: Node, planted: Planted, job: Job) -> None:
        claim = planted.claim
        if not job.withdrawn and claim is not None and claim.job is job:
            claim.job = None
            self._acknowledged.append((node, claim.owner))
            raise_copy_error(job)

    def _give_up(self, planted: Planted) -> None:
        claim, planted.claim = planted.claim, None
        if claim is None:
            return
        if claim.job is not None:
            claim.job.withdraw()
        if planted.span is None:
            return
        if claim.sides == self.parts:
            self._unplace(planted)
            self.device.give_back(planted.span)
            planted.span = None
        elif planted.span.swa is not None:
            self.device.free_swa(planted.span)

    def _unlocked(self, node: Node) -> Planted | None:
        if node in self._locks:
            raise OwnershipError(f"node {node} is locked by {', '.join(map(str, self._locks[node]))}")
        planted = self._nodes.get(node)
        if planted is not None and planted.claim is not None:
            raise OwnershipError(f"node {node} is being loaded by {planted.claim.owner}")
        return planted

    def _left(self, node: Node, planted: Planted) -> None:
        planted.span = None
        self._unplace(planted)
        self._drop_if_nowhere(node, planted)

    def _drop_if_nowhere(self, node: Node, planted: Planted) -> None:
        if planted.span is None and planted.host is None and planted.claim is None:
            del self._nodes[node]

    def _place(self, planted: Planted) -> None:
        for index, name in enumerate(planted.names):
            self._places.setdefault(name, {})[planted] = index

    def _unplace(self, planted: Planted) -> None:
        for name in planted.names:
            places = self._places.get(name, {})
            places.pop(planted, None)
            if not places:
                self._places.pop(name, None)

    def _owners(self) -> Iterator[tuple[str, Block]]:
        yield from super()._owners()
        for node, planted in self._nodes.items():
            for block in planted.span.blocks if planted.span is not None else ():
                yield f"node {node}", block
            if planted.host is not None:
                yield f"copy of node {node}", planted.host
