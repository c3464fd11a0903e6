"""The smallest embedding on SGLang's pools: an unmodified scheduler, its threads in their own time, its file storage.

Runs inside `.sglang/env`: ``pools_on_files.py VERSION``. Prints ``RESULT`` and what it saw, as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Event

import torch

from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle
from hicache_fsm.sglang.harness.stepped import SteppedScheduler
from hicache_fsm.sglang.pools.executor import SGLangPools
from hicache_fsm.sglang.settings import EngineSettings

POOL, CONTEXT, PAGE, LIMIT = 512, 128, 8, 3000
PROMPTS = {"a": list(range(3, 67)), "b": list(range(3, 67))}


def embedded(version: str, folder: Path) -> dict[str, object]:
    """Request `a` leaves a node, which is written and evicted; `b` gets its rows from the files."""
    settings = EngineSettings(
        version=version,
        storage="file",
        latency=None,
        page_size=PAGE,
        pool_tokens=POOL,
        context_tokens=CONTEXT,
        prefetch_threshold=PAGE,
    )
    engine = SteppedScheduler(settings, folder, plugins=False)
    with torch.inference_mode():
        pools = SGLangPools(engine.scheduler, lambda key: PROMPTS[key.rid])
        life = HiCacheLifecycle(pool_tokens=POOL, max_context_len=CONTEXT, page_size=PAGE, executor=pools)
        pools.connect(life)
        kv = engine.scheduler.token_to_kv_pool_allocator.get_kvcache()
        layers = [*kv.k_buffer, *kv.v_buffer]

        def passes(over: Callable[[], bool]) -> None:
            for _ in range(LIMIT):
                if over():
                    return
                pools.drain()
                life.begin_pass()
                # the threads' own time: a scheduler would compute meanwhile
                Event().wait(0.001)
            raise TimeoutError(f"not over after {LIMIT} passes")

        a = life.enqueue("a", tokens=64)
        life.issue(a, asks=False, why="too_short")
        slots = pools.seat(a)
        life.admit(a)
        for layer in layers:
            layer[slots] = torch.rand_like(layer[slots])
        rows = [layer[slots].clone() for layer in layers]
        node = pools.plant(a, 64 // PAGE)
        life.write("kv", pools.names(a))
        life.finish(a)
        pools.unseat(a)
        passes(lambda: pools.empty)
        life.evict(node)
        for layer in layers:
            layer.zero_()

        b: AttemptKey = life.enqueue("b", tokens=64)
        anchor, missing = pools.match(b)
        life.issue(b, tokens=missing, anchor=anchor)
        states = [life.state(b)]

        def loaded() -> bool:
            if life.state(b) != states[-1]:
                states.append(life.state(b))
            return states[-1] == "loaded"

        passes(loaded)
        slots = pools.seat(b)
        admitted = life.admit(b)
        passes(lambda: pools.ready(b))
        same = all(torch.equal(layer[slots], row) for layer, row in zip(layers, rows, strict=True))
        pools.plant(b, 64 // PAGE)
        life.finish(b)
        pools.unseat(b)
        life.evict(node)
        engine.scheduler.tree_cache.sanity_check()
        left = pools.disagreements(life)
        free = int(engine.scheduler.token_to_kv_pool_allocator.available_size())
    engine.close()
    return {
        "states": states,
        "admitted": admitted,
        "same": same,
        "left": left,
        "free": free,
        "idle": engine.idle,
        "empty": pools.empty,
    }


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        print("RESULT " + json.dumps(embedded(sys.argv[1], Path(name))), flush=True)
