"""Plants faults of pools beside the KV pool in a real SGLang, and says what each mode of the plugin makes of them.

Runs inside `.sglang/env`: ``planted_sides.py LAYOUT``. Prints one JSON document, ``{plant: {mode: {...}}}`` with
``warned``, ``raised``, ``repaired`` and ``left``, the host slots in use once the plant was taken back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from planted_leaks import Bench, Warnings, forgotten, patched

from hicache_fsm.sglang.hostpools import HostPool
from hicache_fsm.sglang.modes import InvariantViolation, Mode

Plant = Callable[[Bench], contextlib.AbstractContextManager[None]]
EMPTY = torch.empty(0, dtype=torch.int64)


def slots_in_use(pool: Any) -> torch.Tensor:
    """A boolean for each slot of a host pool."""
    return HostPool(("kv",), pool).used()[0]


def windowless(bench: Bench) -> None:
    """Take the window slots of all nodes that nobody holds: each becomes a tombstone, or goes."""
    from sglang.srt.mem_cache.base_prefix_cache import EvictParams

    bench.tree.evict(EvictParams(num_tokens=0, swa_num_tokens=bench.engine.settings.pool_tokens))


@contextlib.contextmanager
def host_page_dropped(bench: Bench) -> Iterator[None]:
    """A hold goes back without the slots that it has beside the KV pool."""
    rid = bench.lead_to("staged")
    hold = next(iter(bench.pipeline.staged_prefetches.values()))
    kept = list(hold.aux_xfers)
    assert any(len(transfer.host_indices) for transfer in kept)
    hold.aux_xfers = []
    bench.engine.abort(rid)
    yield
    for transfer in kept:
        pool = bench.controller.mem_pool_host.get_pool(transfer.name)
        used = slots_in_use(pool)
        pool.free(transfer.host_indices[used[transfer.host_indices]])


@contextlib.contextmanager
def hold_forgotten(bench: Bench) -> Iterator[None]:
    """A request leaves and its hold stays."""
    rid = bench.lead_to("staged")
    key = next(iter(bench.pipeline.staged_prefetches))
    with patched(bench.pipeline, "release_staged_hold", lambda _: lambda *_, **__: True):
        bench.engine.abort(rid)
    yield
    bench.pipeline.release_staged_hold(key)


@contextlib.contextmanager
def window_freed_twice(bench: Bench) -> Iterator[None]:
    """A tombstone's window slots are given back once more."""
    bench.finish(bench.fresh(60), 2)
    windowless(bench)
    window = bench.allocator.swa_attn_allocator
    before = window.free_pages
    window.free_pages = torch.cat((before, before[-3:]))
    yield
    window.free_pages = before


@contextlib.contextmanager
def window_never_freed(bench: Bench) -> Iterator[None]:
    """Nodes become tombstones, or go, and their window slots are not given back."""
    bench.finish(bench.fresh(60), 2)
    allocator = bench.allocator
    with patched(allocator, "free_swa", forgotten), patched(allocator, "free_swa_segment", forgotten):
        windowless(bench)
    yield
    allocator.free_swa((allocator.full_to_swa_index_mapping[:-1] > 0).nonzero().flatten())


@contextlib.contextmanager
def padding_freed(bench: Bench) -> Iterator[None]:
    """#36637: an evicted tombstone gives back what its window slots are mapped to by now, the padding slot."""
    bench.finish(bench.fresh(60), 2)
    windowless(bench)
    window = bench.allocator.swa_attn_allocator
    before = window.free_pages
    window.free_pages = torch.cat((before, EMPTY.new_zeros(1)))
    yield
    window.free_pages = before


@contextlib.contextmanager
def window_with_two_owners(bench: Bench) -> Iterator[None]:
    """Two full slots are mapped to one window slot."""
    bench.finish(bench.fresh(60), 2)
    mapping = bench.allocator.full_to_swa_index_mapping
    owners = (mapping[:-1] > 0).nonzero().flatten()
    before = mapping[owners[0]].clone()
    mapping[owners[0]] = mapping[owners[1]]
    yield
    mapping[owners[0]] = before


@contextlib.contextmanager
def host_state_freed_twice(bench: Bench) -> Iterator[None]:
    """A host slot of a state is given back twice, which its pool does not notice."""
    bench.finish(bench.fresh(60), 2)
    pool = bench.controller.mem_pool_host.get_pool("mamba")
    before = pool.free_slots
    pool.free_slots = torch.cat((before, before[:1]))
    yield
    pool.free_slots = before


@contextlib.contextmanager
def state_lost(bench: Bench) -> Iterator[None]:
    """A state that belongs to no request and no node."""
    bench.finish(bench.fresh(60), 2)
    states = bench.engine.scheduler.req_to_token_pool.mamba_allocator
    before = states.free_slots
    states.free_slots = before[1:]
    yield
    states.free_slots = before


@contextlib.contextmanager
def state_freed_twice(bench: Bench) -> Iterator[None]:
    """A state is given back twice."""
    bench.finish(bench.fresh(60), 2)
    states = bench.engine.scheduler.req_to_token_pool.mamba_allocator
    before = states.free_slots
    states.free_slots = torch.cat((before, before[:1]))
    yield
    states.free_slots = before


PLANTS: dict[str, dict[str, Plant]] = {
    "swa": {
        "host page": host_page_dropped,
        "hold": hold_forgotten,
        "freed twice": window_freed_twice,
        "never freed": window_never_freed,
        "padding": padding_freed,
        "two owners": window_with_two_owners,
    },
    "mamba": {
        "host page": host_page_dropped,
        "hold": hold_forgotten,
        "state lost": state_lost,
        "state freed twice": state_freed_twice,
        "host state freed twice": host_state_freed_twice,
    },
}


def played(bench: Bench, plant: Plant, mode: Mode, heard: Warnings) -> dict[str, Any]:
    keeper, raised = bench.plugin.keeper, None
    keeper.change(dataclasses.replace(keeper.options, mode=mode))
    keeper.repairs.clear()
    heard.lines.clear()
    with plant(bench):
        try:
            for _ in range(3):
                bench.settle()
            bench.plugin.audit()
        except InvariantViolation as violation:
            raised = str(violation)
        told = {"warned": list(heard.lines), "raised": raised}
        told |= {"repaired": {str(kind): count for kind, count in keeper.repairs.items()}}
    # what is whole again is judged again
    keeper.change(dataclasses.replace(keeper.options, mode=Mode.OBSERVE))
    bench.engine.drain()
    bench.plugin.audit()
    entries = bench.controller.mem_pool_host.entries
    return told | {"left": sum(int(slots_in_use(entry.host_pool).sum()) for entry in entries)}


def main(layout: str) -> None:
    heard = Warnings()
    logging.getLogger("hicache_fsm").addHandler(heard)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench("0.5.23", Path(folder), layout=layout)
        try:
            for name, plant in PLANTS[layout].items():
                modes = (Mode.OBSERVE, Mode.ENFORCE, Mode.STRICT)
                results[name] = {str(mode): played(bench, plant, mode, heard) for mode in modes}
        finally:
            bench.engine.close()
    print("RESULT", json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
