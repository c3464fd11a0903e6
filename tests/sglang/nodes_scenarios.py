"""The node machine on the tree, allocators and host pools of a real SGLang with a sliding-window layer.

Runs inside `.sglang/env`: ``nodes_scenarios.py [PART OF A NAME]``. Prints one JSON document: for each scenario what was
wrong, one line each, and the same for executors with a planted bug.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hicache_fsm.executor.errors import PoolExhaustedError, StillUnderIoError
from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle
from hicache_fsm.sglang.devicepools import at_any_time, at_rest
from hicache_fsm.sglang.harness.stepped import SteppedScheduler
from hicache_fsm.sglang.pools.nodes import SGLangNodes
from hicache_fsm.sglang.settings import EngineSettings
from hicache_fsm.sglang.view import EngineView

WINDOW = 16
TOP, LEAF = "top", "leaf"


class PlantedError(RuntimeError):
    """What an armed effect raises."""


class Faulty:
    """Passes effects on; the armed one raises once, before or after it has acted."""

    def __init__(self, nodes: SGLangNodes) -> None:
        self._nodes = nodes
        self.armed: tuple[str, str] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._nodes, name)
        if self.armed is None or self.armed[0] != name:
            return method
        when, self.armed = self.armed[1], None

        def planted(*args: Any) -> None:
            if when == "after":
                method(*args)
            raise PlantedError(name)

        return planted


class FreesTheWindowTwice(SGLangNodes):
    def free_swa(self, node: Any) -> None:
        window = self.slots(node)[1]
        super().free_swa(node)
        self.allocator.swa_attn_allocator.free(window)


class FreesBothSidesOfATombstone(SGLangNodes):
    """#36637: by the mapping, which leads to the padding slot."""

    def free_full(self, node: Any) -> None:
        slots = self.slots(node)[0]
        super().free_full(node)
        self.allocator.swa_attn_allocator.free(self.allocator.full_to_swa_index_mapping[slots])


class KeepsTheWindow(SGLangNodes):
    def free_swa(self, node: Any) -> None:
        """Nothing."""


class UnclaimsEarly(SGLangNodes):
    def unclaim(self, node: Any, owner: Any) -> None:
        self._claims.pop(node, None)


class Rig:
    """A node and one below it, each of a window, on the device and on the host; and a lifecycle."""

    def __init__(self, engine: SteppedScheduler, number: int, nodes: type[SGLangNodes]) -> None:
        self.nodes = nodes(engine.scheduler)
        self.view = EngineView(engine.scheduler)
        self.executor = Faulty(self.nodes)
        self.problems: list[str] = []
        self.rows: dict[str, list[torch.Tensor]] = {}
        self.gone: set[str] = set()
        self.life = HiCacheLifecycle(
            "recommended",
            pool_tokens=1024,
            max_context_len=512,
            page_size=1,
            executor=self.executor,  # type: ignore[arg-type]
            monitor=True,
        )
        first = [1000 + number, *range(3, 2 + WINDOW)]
        self.plant(TOP, first)
        self.plant(LEAF, [*first, *range(100, 100 + WINDOW)])

    def plant(self, node: str, tokens: list[int]) -> None:
        def fill(slots: torch.Tensor) -> None:
            windows = self.nodes.allocator.full_to_swa_index_mapping[slots]
            for layer, at in self.layers(slots, windows):
                layer[at] = torch.rand_like(layer[at])
            self.rows[node] = [layer[at].clone() for layer, at in self.layers(slots, windows)]

        self.nodes.plant(node, tokens, fill)

    def layers(self, slots: torch.Tensor, windows: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The tensors of both pools, and where to look in them."""
        kv = self.nodes.allocator.get_kvcache()
        sides = ((kv.full_kv_pool, slots), (kv.swa_kv_pool, windows))
        return [
            (layer, at) for pool, at in sides for part in (pool.k_buffer, pool.v_buffer) for layer in part
        ]

    def evict(self, node: str) -> None:
        self.life.evict(node)
        self.gone.add(node)

    def load(self, node: str, owner: str = "r") -> bool:
        taken = self.life.load(node, owner)
        self.gone.discard(node)
        return taken

    def state(self, node: str) -> str:
        """The machine's; a lifecycle does not keep a node that was evicted."""
        return "evicted" if node in self.gone else self.life.node_state(node)

    def drain(self) -> None:
        for node, owner in self.nodes.drain():
            self.life.loaded_back(node, owner)

    def agree(self) -> Rig:
        """The machine's states, what the tree has and the pools say the same, and rows are where they belong."""
        wanted = {
            "resident": (WINDOW, WINDOW),
            "tombstoned": (WINDOW, 0),
            "evicted": (0, 0),
            "pinned": (WINDOW, WINDOW),
        }
        for node in (TOP, LEAF):
            state, has = self.state(node), self.nodes.sides(node)
            loading = node in self.nodes._claims
            if loading != (state == "loading"):
                self.problems.append(f"{node} is {state}, and is {'' if loading else 'not '}being loaded")
            elif not loading and has != wanted[state]:
                self.problems.append(f"{node} is {state}, and has {has[0]} full and {has[1]} window slots")
            if state == "resident" and has == wanted[state]:
                now = [layer[at] for layer, at in self.layers(*self.nodes.slots(node))]
                if not all(torch.equal(one, other) for one, other in zip(now, self.rows[node], strict=True)):
                    self.problems.append(f"the rows of {node} are not those that were planted")
        self.problems += [wrong.message for wrong in at_any_time(self.view) if wrong.amount]
        self.problems += [str(violation) for violation in self.life.check()]
        return self

    def end(self) -> list[str]:
        """Everything leaves the device, and nothing is missing."""
        self.drain()
        for node in (LEAF, TOP):
            if node not in self.gone:
                self.evict(node)
        self.agree()
        self.problems += [wrong.message for wrong in at_rest(self.view) if wrong.amount]
        return self.problems


Step = Callable[[Rig], None]


def tombstone_and_eviction(rig: Rig) -> None:
    allocator = rig.nodes.allocator
    free = allocator.swa_available_size()
    rig.life.tombstone(TOP)
    rig.agree()
    rig.evict(LEAF)
    rig.agree()
    before = allocator.swa_available_size(), allocator.full_available_size()
    rig.evict(TOP)
    rig.agree()
    if (allocator.swa_available_size(), allocator.full_available_size()) != (before[0], before[1] + WINDOW):
        rig.problems.append("an evicted tombstone gave back more than its full side")
    if allocator.swa_available_size() != free + 2 * WINDOW:
        rig.problems.append("the window slots of two nodes were not given back once")


def load_back(rig: Rig) -> None:
    rig.evict(LEAF)
    if not rig.load(LEAF) or rig.load(LEAF, "s"):
        rig.problems.append("one load-back has the node, and the second is refused (#35931)")
    rig.agree()
    rig.drain()
    rig.agree()


def load_back_of_what_a_tombstone_lost(rig: Rig) -> None:
    rig.life.tombstone(TOP)
    rig.load(TOP)
    rig.agree()
    rig.drain()
    rig.agree()
    rig.life.tombstone(TOP)
    rig.agree()


def load_back_under_another(rig: Rig) -> None:
    """A load-back brings the full sides of the nodes above; the window of one of them may be another's (0.5.23)."""
    rig.evict(LEAF)
    rig.evict(TOP)
    rig.load(LEAF)
    before = rig.nodes.allocator.swa_available_size()
    if rig.nodes.sides(TOP) != (WINDOW, 0):
        rig.problems.append("the path of a node that is loaded comes with it, its window does not")
    if not rig.load(TOP, "s") or rig.nodes.allocator.swa_available_size() != before - WINDOW:
        rig.problems.append("the side that the first one left is the second's")
    rig.drain()
    rig.agree()


def not_over(rig: Rig) -> None:
    rig.evict(LEAF)
    rig.load(LEAF)
    try:
        rig.life.loaded_back(LEAF, "r")
        rig.problems.append("a copy counted as over that SGLang has not acknowledged")
    except StillUnderIoError:
        pass
    rig.drain()
    rig.agree()


def pinned(rig: Rig) -> None:
    rig.nodes.lock_anchor(AttemptKey("r", 0), LEAF, WINDOW, lambda way_back: None)
    for free in (rig.nodes.free_both, rig.nodes.free_swa):
        try:
            free(LEAF)
            rig.problems.append(f"{free.__name__} of a locked node")
        except RuntimeError:
            pass
    rig.agree()
    rig.nodes.unlock_anchor(AttemptKey("r", 0), LEAF, WINDOW)


def nothing_to_load(rig: Rig) -> None:
    try:
        rig.nodes.claim(LEAF, "r", lambda way_back: None)
        rig.problems.append("a node that is whole on the device was loaded")
    except (RuntimeError, PoolExhaustedError):
        pass
    rig.agree()


def _evicted(rig: Rig) -> Callable[[], Any]:
    rig.evict(LEAF)
    return lambda: rig.load(LEAF)


def _loading(rig: Rig) -> Callable[[], Any]:
    rig.evict(LEAF)
    rig.load(LEAF)
    rig.nodes.drain()
    return lambda: rig.life.loaded_back(LEAF, "r")


def _tombstoned(rig: Rig) -> Callable[[], Any]:
    rig.life.tombstone(TOP)
    rig.evict(LEAF)
    return lambda: rig.evict(TOP)


EFFECTS: dict[str, Callable[[Rig], Callable[[], Any]]] = {
    "claim": _evicted,
    "unclaim": _loading,
    "free_swa": lambda rig: lambda: rig.life.tombstone(TOP),
    "free_both": lambda rig: lambda: rig.evict(LEAF),
    "free_full": _tombstoned,
}


def raised(effect: str, when: str) -> Step:
    """The effect raises once, and its event comes again."""

    def scenario(rig: Rig) -> None:
        act = EFFECTS[effect](rig)
        states = [rig.state(node) for node in (TOP, LEAF)]
        rig.executor.armed = effect, when
        try:
            act()
            rig.problems.append(f"{effect} was not reached")
        except PlantedError:
            pass
        if [rig.state(node) for node in (TOP, LEAF)] != states:
            rig.problems.append("the state changed although its effect failed")
        act()
        rig.agree()
        rig.drain()
        rig.agree()

    return scenario


SCENARIOS: dict[str, Step] = {
    "tombstone and eviction": tombstone_and_eviction,
    "load-back": load_back,
    "load-back of what a tombstone lost": load_back_of_what_a_tombstone_lost,
    "load-back under another": load_back_under_another,
    "not over": not_over,
    "pinned": pinned,
    "nothing to load": nothing_to_load,
} | {f"{effect} raises {when}": raised(effect, when) for effect in EFFECTS for when in ("before", "after")}
BROKEN: dict[str, type[SGLangNodes]] = {
    "tombstone and eviction": FreesTheWindowTwice,
    "free_full raises before": FreesBothSidesOfATombstone,
    "free_swa raises before": KeepsTheWindow,
    "not over": UnclaimsEarly,
}
"""Executors with a planted bug, by the scenario that has to see it."""


def main(wanted: str = "") -> None:
    logging.disable(logging.ERROR)
    results: dict[str, list[str]] = {}
    plays = [(name, step, SGLangNodes) for name, step in SCENARIOS.items()]
    plays += [(f"{nodes.__name__}: {name}", SCENARIOS[name], nodes) for name, nodes in BROKEN.items()]
    settings = EngineSettings(mode="cache", layout="swa", window_tokens=WINDOW, latency=None)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        engine = SteppedScheduler(settings, Path(folder), plugins=False)
        engine.scheduler.tree_cache.detach_storage_backend()
        for number, (name, step, nodes) in enumerate(plays):
            if wanted not in name:
                continue
            engine.scheduler.tree_cache.reset()
            try:
                rig = Rig(engine, number, nodes)
                step(rig)
                results[name] = rig.end()
            except Exception:
                results[name] = [traceback.format_exc()]
            engine.scheduler.token_to_kv_pool_allocator.clear()
        print("RESULT " + json.dumps(results), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
