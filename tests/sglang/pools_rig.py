"""A lifecycle on the pools of a real SGLang whose storage answers when told. Imported only inside `.sglang/env`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle
from hicache_fsm.sglang.pools.executor import SGLangPools
from hicache_fsm.sglang.target.engine import QUESTIONS, READS, WRITES, GatedEngine
from hicache_fsm.sglang.target.storage import Verdict
from hicache_fsm.sglang.target.world import PAGE, PlainWorld

HEAD, CHAIN = ("p0", "p1"), ("p0", "p1", "p2", "p3")
FEEDS = (QUESTIONS, READS, WRITES)
FETCHED = 2
"""Pages that a request for the chain finds in storage once its tail has left the device."""


class PlantedError(RuntimeError):
    """What an armed effect raises."""


class Faulty:
    """Passes effects on; the armed one raises once, before or after it has acted."""

    def __init__(self, pools: SGLangPools) -> None:
        self._pools = pools
        self.armed: tuple[str, str] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._pools, name)
        if self.armed is None or self.armed[0] != name:
            return method
        when, self.armed = self.armed[1], None

        def planted(*args: Any) -> None:
            if when == "after":
                method(*args)
            raise PlantedError(name)

        return planted


class Rushed(SGLangPools):
    """Gives pages back at an abort, while a thread reads into them (#31668)."""

    def orphan_operation(self, key: AttemptKey, op: int) -> None:
        super().orphan_operation(key, op)
        fetch = self._fetches[op]
        self._free_host(fetch.slots)
        fetch.slots = fetch.slots[:0]


class Forgetful(SGLangPools):
    """Registers no way back before it takes pages."""

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Any) -> None:
        super().take_pages(key, op, pages, lambda way: None)


class Sticky(SGLangPools):
    """Keeps its pins."""

    def unlock_anchor(self, key: AttemptKey, node: Any, tokens: int) -> None:
        """Nothing."""


class Shifted(SGLangPools):
    """Copies a hold one page too far to the left of where it belongs."""

    def _copy(self, seat: Any, loaded: torch.Tensor, held: torch.Tensor) -> None:
        super()._copy(seat, loaded.roll(PAGE), held)


class Credulous(SGLangPools):
    """Takes every write for done (upstream does)."""

    def _on_storage(self, write: Any, tokens: int) -> None:
        super()._on_storage(write, len(write.names) * PAGE)


BROKEN: dict[str, type[SGLangPools]] = {
    "abort while reading": Rushed,
    "take_pages raises after, given up": Forgetful,
    "cut while reading": Sticky,
    "journey": Shifted,
    "failed write": Credulous,
}
"""Executors with a planted bug, by the scenario that has to see it."""


class Rig:
    """A world of the gated engine, an executor on its objects and a lifecycle; ``head`` and ``chain`` are written to
    storage, and the chain's tail has left the device.
    """

    def __init__(self, engine: GatedEngine, pools: type[SGLangPools] = SGLangPools) -> None:
        prompts = dict.fromkeys("rstuv", CHAIN) | {"head": HEAD, "chain": CHAIN}
        world = PlainWorld(
            prompts,
            mode="buffer_only",
            policy="wait_complete",
            interval=1,
            max_attempts=2,
            threshold=1,
            pool=24,
            host=12,
            context=8,
            cap_fraction=0.5,
            storage=(),
        )
        engine.begin(world)
        self.engine, self.problems = engine, list[str]()
        self.allocator = engine.scheduler.token_to_kv_pool_allocator
        self.pools = pools(engine.scheduler, lambda key: engine.pages.tokens(prompts[key.rid]))
        self.executor = Faulty(self.pools)
        self.life = HiCacheLifecycle(
            "recommended",
            pool_tokens=world.pool_tokens,
            max_context_len=world.context_tokens,
            page_size=PAGE,
            executor=self.executor,  # type: ignore[arg-type]
            monitor=True,
        )
        self.pools.connect(self.life)
        self.rows: dict[str, list[torch.Tensor]] = {}
        self.nodes: dict[str, str] = {}
        # what is to be in the pools whenever nobody is queued, running or being written
        self.start = self.owned()

    # ---- storage

    def serve(self, feeds: tuple[str, ...] = FEEDS) -> None:
        """Let storage answer everything that has been put to it, and book it."""
        engine = self.engine
        for _ in range(20):
            self.pools.drain()
            engine.rest.settle()
            for feed in feeds:
                for operation in engine.waiting(feed):
                    engine.serve(feed, operation)
                    while engine.serving(feed) is operation:
                        engine.tell(feed, Verdict())
                while engine.serving(feed) is not None:
                    engine.tell(feed, Verdict())
        self.pools.drain()

    def step(self) -> list[AttemptKey]:
        """Storage answers, a pass begins."""
        self.serve()
        return self.life.begin_pass()

    # ---- requests

    def write(self, rid: str) -> str:
        """A request computes its rows, leaves a node, which is written, and finishes."""
        life, pools = self.life, self.pools
        key = life.enqueue(rid, tokens=len(self.pools._span(AttemptKey(rid, 0))))
        life.issue(key, asks=False, why="too_short")
        slots = pools.seat(key)
        life.admit(key)
        torch.manual_seed(len(rid))
        kv = self.allocator.get_kvcache()
        fresh = slots[len(pools._seats[key].prefix) :]
        for layers in (kv.k_buffer, kv.v_buffer):
            for layer in layers:
                layer[fresh] = torch.rand_like(layer[fresh])
        self.rows[rid] = self.read(slots)
        node = pools.plant(key, len(slots) // PAGE)
        life.write("kv", pools.names(key))
        life.finish(key)
        pools.unseat(key)
        self.step()
        return node

    def read(self, slots: torch.Tensor) -> list[torch.Tensor]:
        """The KV rows in these slots, all layers."""
        kv = self.allocator.get_kvcache()
        return [layer[slots].clone() for layers in (kv.k_buffer, kv.v_buffer) for layer in layers]

    def stored(self) -> Rig:
        """The head is on the device, the tail in storage alone."""
        self.nodes = {rid: self.write(rid) for rid in ("head", "chain")}
        self.life.evict(self.nodes["chain"])
        self.start = self.owned()
        return self

    def queue(self, rid: str = "r") -> AttemptKey:
        """A request for the chain."""
        return self.life.enqueue(rid, tokens=len(CHAIN) * PAGE)

    def ask(self, key: AttemptKey) -> int | None:
        """Its question goes out, with its anchor pinned."""
        anchor, missing = self.pools.match(key)
        return self.life.issue(key, tokens=missing, anchor=anchor)

    def reading(self, key: AttemptKey, pages: int = 1) -> int:
        """So many of its pages are read, the next one is held in storage."""
        op = self.ask(key)
        assert op is not None
        self.serve((QUESTIONS,))
        self.life.begin_pass()
        self.engine.rest.settle()
        self.engine.serve(READS, self.pools._fetches[op].operation)
        for _ in range(pages):
            self.engine.tell(READS, Verdict())
        self.pools.drain()
        return op

    def loaded(self, key: AttemptKey) -> None:
        """Its hold is staged."""
        self.ask(key)
        self.step()
        self.step()
        self.same(self.life.state(key), "loaded")

    # ---- looking

    def owned(self) -> dict[str, int]:
        """What is taken of SGLang's own pools and counters."""
        tree = self.engine.tree
        found = {
            "host": self.engine.host_size - self.engine.host_free,
            "device": self.allocator.size - self.allocator.available_size(),
            "occupied": self.engine.view.occupied_tokens,
            "pins": len(self.pools.pipeline.anchor_locks),
            "locked": int(tree.protected_size()),
        }
        return {name: int(count) for name, count in found.items()}

    def same(self, seen: object, expected: object, what: str = "") -> None:
        """Note a difference."""
        if seen != expected:
            line = sys._getframe(1).f_lineno
            self.problems.append(f"{what or f'line {line}'}: {seen}, not {expected}")

    def refuses(self, act: Callable[[], Any], error: type[BaseException]) -> None:
        """Note that it was not refused so."""
        try:
            act()
            self.problems.append(f"no {error.__name__}")
        except error:
            pass

    def agree(self) -> None:
        """The three books agree."""
        self.problems += self.pools.disagreements(self.life)

    def end(self) -> list[str]:
        """End everything; what is left, or wrong with the tree."""
        for attempt in list(self.life._core.queue.values()):
            self.life.abort(attempt.key)
        for key in [*self.life._core.running, *self.pools._seats]:
            if key in self.life._core.running:
                self.life.finish(key)
            self.pools.unseat(key)
        self.step()
        self.step()
        self.agree()
        self.same(self.owned(), self.start, "left behind")
        for node in reversed(list(self.pools._nodes)):
            self.life.evict(node)
        nothing = dict.fromkeys(self.start, 0)
        self.same(self.owned(), nothing, "left with an empty tree")
        self.same(self.pools.empty, True, "the executor is empty")
        self.same(self.life.idle, True, "the lifecycle is idle")
        self.same(self.engine.audit(), {}, "the engine's own audit")
        self.engine.tree.sanity_check()
        return self.problems
