"""The runtime's nodes in a world of pins, evictions and load-backs."""

from collections.abc import Iterator
from dataclasses import replace

from hicache_fsm.conform.graph import State
from hicache_fsm.conform.pools import Anchor, SlotPools
from hicache_fsm.conform.runtime_side import Choice
from hicache_fsm.model.node import Scope
from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle
from hicache_fsm.spec import Spec


class NodeDriver:
    """Every node has as many queued requests as may hold it, each with a pin of its own."""

    def __init__(self, spec: Spec, profile: str, scope: Scope, names: tuple[str, ...]) -> None:
        self.names = names
        self._again = spec, profile, scope, names
        self._scope = scope
        self._nodes = [f"n{n}" for n in range(scope.nodes)]
        self._pools = SlotPools(scope.full, scope.swa, self._nodes)
        room = 4 * scope.nodes * scope.holders
        self._life = HiCacheLifecycle(
            profile, pool_tokens=room + 1, max_context_len=1, spec=_roomy(spec, profile), executor=self._pools
        )
        self._free = {
            node: [self._life.enqueue(f"{node}h{holder}", 1) for holder in range(scope.holders)]
            for node in self._nodes
        }
        self._held: dict[str, list[AttemptKey]] = {node: [] for node in self._nodes}

    def choices(self) -> Iterator[Choice]:
        """Everything a cache may ask for; a load-back is busy with one node and needs the missing slots."""
        loaders = range(self._scope.loaders)
        busy = {loader: any(self._claims(node, loader) for node in self._nodes) for loader in loaders}
        for node in self._nodes:
            yield "pin", node
            yield "unpin", node
            yield "tombstone", node
            yield "evict", node
            for loader in loaders:
                if not busy[loader] and self._loadable(node):
                    yield "load", node, loader
                if busy[loader]:
                    yield "loaded", node, loader

    def take(self, choice: Choice) -> bool:
        """Do it."""
        event, node, loader = str(choice[0]), str(choice[1]), choice[-1]
        match event:
            case "pin":
                return self._pin(node)
            case "unpin":
                return self._unpin(node)
            case "tombstone":
                return bool(self._pools.full[node]) and self._life.tombstone(node)
            case "evict":
                return self._evict(node)
            case "load":
                return self._life.load(node, f"l{loader}")
        return self._life.loaded_back(node, f"l{loader}")

    def label(self, choice: Choice) -> str:
        """The event and the node."""
        return f"{choice[0]} {choice[1]}"

    def restart(self) -> "NodeDriver":
        """A new lifecycle: this one's nodes may be in the hands of load-backs."""
        return NodeDriver(*self._again)

    def observe(self) -> State:
        """The node machine's books, and who owns slots."""
        pools = self._pools
        values: dict[str, int | str] = {"full_free": pools.full_free, "swa_free": pools.swa_free}
        for node in self._nodes:
            values[f"{node}.state"] = self._state(node)
            values[f"{node}.holders"] = len(self._held[node])
            values[f"{node}.full"] = pools.full[node]
            values[f"{node}.swa"] = pools.swa[node]
            for loader in range(self._scope.loaders):
                values[f"{node}.claim{loader}"] = int(self._claims(node, loader))
        return tuple(values[name] for name in self.names)

    def _pin(self, node: str) -> bool:
        if not self._free[node]:
            return False
        key = self._free[node][-1]
        if self._life.pin(key, Anchor(node, 1, on_device=bool(self._pools.full[node]))) != "locked":
            self._life.unpin(key)
            return False
        self._held[node].append(self._free[node].pop())
        return True

    def _unpin(self, node: str) -> bool:
        if not self._held[node]:
            return False
        key = self._held[node][-1]
        if not self._life.unpin(key):
            return False
        self._free[node].append(self._held[node].pop())
        return True

    def _evict(self, node: str) -> bool:
        if not self._pools.full[node]:
            return False
        before = self._pools.full_free
        self._life.evict(node)
        return self._pools.full_free != before

    def _state(self, node: str) -> str:
        """The lifecycle keeps no node that is evicted: it takes one it does not know for resident."""
        state = self._life._core.nodes.state(node)
        return "evicted" if state == "resident" and not self._pools.full[node] else state

    def _claims(self, node: str, loader: int) -> bool:
        standing = self._life._core.nodes._nodes.get(node)
        return standing is not None and standing.owner == f"l{loader}"

    def _loadable(self, node: str) -> bool:
        """Whether a side is missing or on its way, and the pools have what is missing."""
        pools = self._pools
        incomplete = not (pools.full[node] and pools.swa[node]) or self._state(node) == "loading"
        full = pools.full[node] or pools.full_free > 0
        return bool(incomplete and full and (pools.swa[node] or pools.swa_free > 0))


def _roomy(spec: Spec, profile: str) -> Spec:
    """The spec with pins that only the number of holders limits."""
    chosen = spec.profiles[profile]
    constants = replace(chosen.constants, pin_fraction=1.0, headroom_slack=0)
    return replace(spec, profiles={**spec.profiles, profile: replace(chosen, constants=constants)})
