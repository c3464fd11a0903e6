"""What the cache tells a lifecycle: pins, nodes of its tree, and what it learns about storage."""

from collections.abc import Hashable, Sequence

from hicache_fsm.runtime.attempt import Anchor, Attempt, AttemptKey, Node
from hicache_fsm.runtime.beliefs import Beliefs, Page
from hicache_fsm.runtime.known import Known


class CacheSide(Known):
    """The side of a lifecycle that the cache calls.  Illegal events are as in `HiCacheLifecycle`."""

    beliefs: Beliefs

    def pin(self, key: AttemptKey, anchor: Anchor) -> str:
        """Pin the anchor as far as the cap allows: locked, held, cap_skip, cap_busy or anchor_lost.

        cap_skip can never fit and goes on unpinned; cap_busy may fit later. Illegal for an attempt that is
        over.
        """
        attempt = self._find(key, "pin", machine="pin")
        if attempt is None:
            return "unservable"
        core = self._core
        with core.rollback:
            plan = core.pins.plan(attempt, anchor, core.rollback.undo)
        if plan is None:
            core.object("pin", "pin", "released", key, 'pin: "pin" is not allowed here')
            return "unservable"
        attempt.anchor = anchor
        core.pins.commit(plan)
        core.journal.pinned(plan)
        return plan.why

    def unpin(self, key: AttemptKey) -> int:
        """Release the attempt's pin, and no other holder's.

        Returns the tokens given back, 0 if none were held.
        """
        attempt = self._find(key, "unpin", machine="pin")
        if attempt is None:
            return 0
        self._core.pins.unlock(attempt)
        tokens = self._core.pins.commit_unpin(attempt)
        if tokens is not None:
            self._core.journal.unpinned(attempt, "unpin", tokens)
        return tokens or 0

    def pin_verdict(self, tokens: int) -> str:
        """What a pin of so many tokens would be answered now: locked, cap_busy or cap_skip."""
        return self._core.pins.verdict(tokens)

    def evict(self, node: Node, tokens: int = 0) -> list[AttemptKey]:
        """The node left the device.  Returns the attempts that hang on it, for `lose_anchor`, in queue order.

        Illegal for a node that is held or being loaded.
        """
        if not self._node("evict", node, tokens=tokens):
            return []
        return [attempt.key for attempt in self._core.pins.lose(node)]

    def load(self, node: Node, owner: Hashable) -> bool:
        """A load-back wants the node.  False if another one in flight has it: recompute (#35931)."""
        return self._node("load", node, owner)

    def loaded_back(self, node: Node, owner: Hashable) -> bool:
        """The copy of the load-back that owns the node was acknowledged."""
        return self._node("loaded", node, owner)

    def tombstone(self, node: Node) -> bool:
        """The node left the sliding window: its SWA side is freed."""
        return self._node("tombstone", node)

    def node_state(self, node: Node) -> str:
        """The node machine's state; resident for a node that is neither held, nor loading, nor tombstoned."""
        return self._core.nodes.state(node)

    def write(self, pool: str, pages: Sequence[Page]) -> list[Page]:
        """An insert offers pages.

        Returns those whose write was launched: neither believed stored nor being written.
        """
        return self.beliefs.write(pool, pages)

    def stored(self, pool: str, pages: Sequence[Page]) -> None:
        """Writes were acknowledged as done."""
        self.beliefs.answer("stored", pool, pages)

    def write_failed(self, pool: str, pages: Sequence[Page]) -> None:
        """Writes were acknowledged as failed."""
        self.beliefs.answer("write_failed", pool, pages)

    def believe(self, pool: str, pages: Sequence[Page]) -> None:
        """A question or a fetch found the pages: another name for `confirm`."""
        self.confirm(pool, pages)

    def confirm(self, pool: str, pages: Sequence[Page]) -> None:
        """A question or a fetch found the pages."""
        self.beliefs.answer("confirm", pool, pages)

    def deny(self, pool: str, pages: Sequence[Page]) -> None:
        """A question found the pages absent."""
        self.beliefs.answer("deny", pool, pages)

    def discard(
        self,
        pool: str,
        chain: Sequence[Page],
        completed_pages: int,
        transfers: Sequence[tuple[int | None, int]],
    ) -> int:
        """A hybrid fetch was discarded: see `Beliefs.discard` (#36386).  Returns the pages still believed."""
        return self.beliefs.discard(pool, chain, completed_pages, transfers)

    def clear(self) -> None:
        """Storage was cleared."""
        self.beliefs.everywhere("clear")

    def _find(self, key: AttemptKey, event: str, machine: str = "prefetch") -> Attempt | None:
        """The waiting attempt; any other is an illegal subject of the event."""
        attempt = self._core.queue.get(key)
        if attempt is None:
            known = self._core.find(key)
            state = "unknown" if known is None else self._core.table.states[known.state]
            self._core.object(
                machine, event, state, key, f'{machine}: "{event}" is illegal: the attempt is {state}'
            )
        return attempt

    def _node(self, event: str, node: Node, owner: Hashable = None, tokens: int = 0) -> bool:
        nodes = self._core.nodes
        done = nodes.change(event, node, owner, tokens)
        if done is None:
            self._core.object("node", event, nodes.state(node), f"node {node}", nodes.explain(event, node))
        return bool(done)
