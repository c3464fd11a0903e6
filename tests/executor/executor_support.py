"""Small pools that the executor's tests share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hicache_fsm.executor.rig import Raising
from hicache_fsm.executor.stores import MemoryStore, Store
from hicache_fsm.executor.torchpools import Sizes, TorchPools
from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle
from hicache_fsm.spec import load_spec

SPEC = load_spec()
PAGE = 4
SIZES = Sizes(device_tokens=64, host_pages=12, page_size=PAGE, width=2, threshold=PAGE)
HYBRID = replace(SIZES, layout="hybrid", swa_tokens=64)


def rows(pages: int, seed: int = 0) -> torch.Tensor:
    """Rows for so many pages, shape (tokens, width), the same for the same seed."""
    return torch.rand((pages * PAGE, SIZES.width), generator=torch.Generator().manual_seed(seed))


@dataclass
class World:
    """A lifecycle on pools; `chains` names the pages of each request id's prompt."""

    pools: TorchPools
    executor: Raising
    life: HiCacheLifecycle
    store: Store
    chains: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def enqueue(self, rid: str, *names: str) -> AttemptKey:
        """A request whose prompt has these pages."""
        self.chains[rid] = names
        return self.life.enqueue(rid, PAGE * len(names))

    def step(self) -> None:
        """Let the I/O under way end, and take its answers in."""
        self.pools.drain(wait=True)
        self.life.begin_pass()

    def admit(self, key: AttemptKey) -> int:
        """Give the request a seat for its whole prompt, and admit it."""
        self.pools.seat(key, PAGE * len(self.chains[key.rid]))
        tokens = self.life.admit(key)
        self.pools.drain(wait=True)
        return tokens

    def plant(self, node: str, rows: Any, *names: str) -> None:
        """A node of these pages on the device, with `rows` of shape (tokens, width) in every part."""
        key = self.enqueue(f"maker of {node}", *names)
        self.admit(key)
        span = self.pools.seated(key)
        assert span is not None
        for part, block in zip(self.pools.parts, span.blocks, strict=True):
            self.pools.device.fill(part, block, rows)
        self.pools.plant(key, node, names)
        self.finish(key)

    def write(self, *names: str) -> None:
        """Write the pages of every part to storage, and take the acknowledgements in."""
        for part in self.pools.parts:
            self.life.write(part, names)
        self.step()
        self.step()

    def finish(self, key: AttemptKey) -> None:
        """A running request is done."""
        self.life.finish(key)
        self.pools.unseat(key)


@contextmanager
def world(sizes: Sizes = SIZES, store: Store | None = None, **options: Any) -> Iterator[World]:
    """Pools and a lifecycle; at the end the threads are stopped, and the books have to agree."""
    store = MemoryStore() if store is None else store
    pools = TorchPools(sizes, store, lambda key: made.chains[key.rid], **options)
    executor = Raising(pools)
    life = HiCacheLifecycle(
        pool_tokens=sizes.device_tokens,
        max_context_len=sizes.device_tokens // 2,
        host_tokens=sizes.host_pages * sizes.page_size,
        page_size=sizes.page_size,
        executor=executor,
        monitor=True,
        spec=SPEC,
    )
    made = World(pools, executor, life, store)
    pools.connect(life)
    try:
        yield made
        assert pools.disagreements(life) == []
    finally:
        pools.close()
