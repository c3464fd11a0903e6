"""A lifecycle on small torch pools whose storage, threads and effects can be made to fail, step by step."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from threading import Event
from types import TracebackType
from typing import Any, Literal, Self

from hicache_fsm.executor.backend import torch
from hicache_fsm.executor.device import Layout, Span
from hicache_fsm.executor.stores import MemoryStore
from hicache_fsm.executor.torchpools import Sizes, TorchPools
from hicache_fsm.runtime import Anchor, HiCacheLifecycle, NullExecutor
from hicache_fsm.spec import Spec

When = Literal["before", "after"]
PAGE = 4
CHAIN = ("p0", "p1", "p2", "p3")
TOKENS = PAGE * len(CHAIN)
NODE = "n"
LOADER = "load-back 1"
SIZES = Sizes(
    device_tokens=64, host_pages=12, page_size=PAGE, width=2, layout="hybrid", swa_tokens=64, threshold=PAGE
)
POISON = 7.0


class PlantedError(RuntimeError):
    """What a planted effect raises."""


class UnsureStore(MemoryStore):
    """Fails while `broken`; holds each read after the first `reads` ones until `go`, and says so by `held`."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.failures = 0
        self.reads = -1
        self.go = Event()
        self.held = Event()

    def exists(self, pool: str, name: str) -> bool:
        self._fail()
        return super().exists(pool, name)

    def read(self, pool: str, name: str, into: memoryview) -> bool:
        if self.reads == 0:
            self.held.set()
            self.go.wait()
        elif self.reads > 0:
            self.reads -= 1
        self._fail()
        return super().read(pool, name, into)

    def write(self, pool: str, name: str, data: bytes) -> None:
        self._fail()
        super().write(pool, name, data)

    def has(self, pool: str, name: str, data: bytes) -> bool:
        """Whether the page is stored, and is this one: asked by no thread, and never failing."""
        return self._pages.get((pool, name)) == data

    def _fail(self) -> None:
        if self.broken:
            self.failures += 1
            raise OSError("storage error")


class Raising(NullExecutor):
    """Passes every effect on to the pools; the one that is armed raises, before or after it has acted."""

    def __init__(self, pools: TorchPools) -> None:
        self._pools = pools
        self.armed: tuple[str, When] | None = None

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name == "armed":
            return super().__getattribute__(name)
        method = getattr(self._pools, name)
        return method if self.armed is None or self.armed[0] != name else self._planted(method, self.armed[1])

    def _planted(self, method: Callable[..., object], when: When) -> Callable[..., object]:
        def raising(*args: Any, **kwargs: Any) -> object:
            if when == "after":
                method(*args, **kwargs)
            raise PlantedError(f"{when} {method.__name__}")

        return raising


class Rig:
    """One attempt `r`, one node `n` of the same four pages, and everything that may go wrong."""

    def __init__(self, spec: Spec, pools: type[TorchPools] = TorchPools, layout: Layout = "hybrid") -> None:
        self.store = UnsureStore()
        sizes = replace(SIZES, layout=layout)
        self.pools = pools(sizes, self.store, lambda key: CHAIN, storage_threads=1)
        self.executor = Raising(self.pools)
        self.life = HiCacheLifecycle(
            "recommended",
            pool_tokens=SIZES.device_tokens,
            max_context_len=SIZES.device_tokens // 2,
            host_tokens=SIZES.host_pages * PAGE,
            page_size=PAGE,
            executor=self.executor,
            monitor=True,
            spec=spec,
        )
        self.pools.connect(self.life)
        self.key = self.life.enqueue("r", TOKENS)
        self.beside = self.life.enqueue("beside", TOKENS)
        self.running = False
        self._poison: list[tuple[Any, Any, Any]] = []
        self._copied: list[tuple[Hashable, Hashable]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.store.go.set()
        for lane in (self.pools.copies, self.pools.storage):
            lane.close()

    @property
    def part(self) -> str:
        """The side of the device pool that is written to storage."""
        return self.pools.parts[0]

    @property
    def anchor(self) -> Anchor:
        """The node, as an anchor."""
        return Anchor(NODE, TOKENS)

    @property
    def state(self) -> str:
        """The attempt's state."""
        return str(self.life.state(self.key))

    @property
    def node_state(self) -> str:
        """The node's state."""
        state = self.life.node_state(NODE)
        # The machine keeps neither resident nor evicted nodes: only the pools tell them apart.
        return "evicted" if state == "resident" and self.pools.span_of(NODE) is None else state

    def books(self) -> tuple[object, ...]:
        """What the lifecycle knows; equal before and after an effect that raised."""
        life = self.life
        return (
            self.state,
            life.operation(self.key),
            life.occupied_tokens,
            life.pinned_tokens,
            tuple(life.orphans),
            life.beliefs.state(self.part, CHAIN[0]),
            life.node_state(NODE),
        )

    def owned(self) -> dict[str, int]:
        """Slots that are not free, by pool."""
        pools = (*self.pools.device.pools.values(), self.pools.host.slots)
        return {pool.name: pool.capacity - pool.free for pool in pools}

    def settle(self) -> None:
        """Let the I/O under way end, and post its answers."""
        self._copied += self.pools.drain(wait=True)

    def step(self) -> None:
        """Let the I/O under way end, and take its answers in."""
        self.settle()
        self.life.begin_pass()

    def plant(self) -> None:
        """The node gets its four pages, each token with a value of its own."""
        key = self.life.enqueue("first", TOKENS)
        span = self.pools.seat(key, TOKENS)
        self.life.admit(key)
        for part, block in zip(self.pools.parts, span.blocks, strict=True):
            self.pools.device.fill(part, block, self.rows(part))
        self.pools.plant(key, NODE, CHAIN)
        self.life.finish(key)
        self.pools.unseat(key)

    def rows(self, part: str) -> Any:
        """What the chain has in one part, shape (tokens, width), a value of its own for each element."""
        rows = torch.arange(TOKENS * SIZES.width, dtype=torch.float32) + 1000 * self.pools.parts.index(part)
        return rows.view(TOKENS, SIZES.width)

    def stored(self, part: str) -> dict[str, bytes]:
        """The same as storage has it, by page."""
        pages = self.rows(part).view(len(CHAIN), -1).numpy()
        return {name: page.tobytes() for name, page in zip(CHAIN, pages, strict=True)}

    def store_chain(self) -> None:
        """Storage has the chain, both parts of it."""
        for part in self.pools.parts:
            for name, page in self.stored(part).items():
                self.store.write(part, name, page)

    def pin_beside(self) -> None:
        """Another attempt pins the node, too, until the end."""
        self.life.pin(self.beside, Anchor(NODE, PAGE))

    def ask(self) -> int:
        """The attempt's question goes out."""
        op = self.life.issue(self.key)
        assert op is not None
        return op

    def transfer(self) -> int:
        """Asked and hit: the read is under way."""
        op = self.ask()
        self.step()
        return op

    def transfer_held(self) -> int:
        """As `transfer`, until storage holds a read."""
        op = self.transfer()
        self.store.held.wait()
        return op

    @property
    def io_may_end(self) -> bool:
        """Whether no read is held."""
        return not self.store.held.is_set() or self.store.go.is_set()

    def load(self) -> None:
        """Asked, hit and read: the attempt has its hold."""
        self.transfer()
        self.step()

    def pause(self) -> None:
        """I/O that begins from here on does not run."""
        self.pools.copies.pause()
        self.pools.storage.pause()

    def resume(self) -> None:
        """I/O runs again."""
        self.store.go.set()
        self.pools.copies.resume()
        self.pools.storage.resume()

    def under_io(self) -> int:
        """Slots that I/O still reads or writes."""
        pools = (*self.pools.device.pools.values(), self.pools.host.slots)
        return sum(len(block) for pool in pools for block in pool.blocks() if block.borrowers)

    def wrong(self) -> list[str]:
        """Rows and pages that the lifecycle takes for there, and that are not, or not these."""
        found = []
        span, running = self.pools.span_of(NODE), self.running and self.pools.ready(self.key)
        for part in self.pools.parts:
            if self.node_state in ("resident", "pinned") and not self._has(span, part, TOKENS):
                found.append(f"node {NODE} is {self.node_state} without its {part} rows")
            seat = self.pools.seated(self.key)
            if running and not self._has(seat, part, self.pools.known_tokens(self.key)):
                found.append(f"{self.key} runs without its {part} rows")
            for name, page in self.stored(part).items():
                believed = self.life.beliefs.state(part, name) == "believed"
                if believed and not self.store.has(part, name, page):
                    found.append(f"page {name} of {part} is believed, and storage has not got it")
        return found

    def _has(self, span: Span | None, part: str, tokens: int) -> bool:
        block = None if span is None else {"kv": span.full, "swa": span.swa}[part]
        if block is None:
            return False
        return bool(torch.equal(self.pools.device.load(part, block)[:tokens], self.rows(part)[:tokens]))

    def poison(self) -> None:
        """Take every free slot and fill it: I/O that touches one shows in `unpoison`."""
        sides = [(self.pools.device.rows, pool) for pool in self.pools.device.pools.values()]
        for rows, pool in (*sides, (self.pools.host.rows, self.pools.host.slots)):
            block = pool.take(pool.free, "poison")
            for part in [pool.name] if pool.name in rows else list(rows):
                rows[part][block.slots] = POISON
                self._poison.append((rows[part], block.slots, block))

    def unpoison(self) -> list[str]:
        """Give the poisoned slots back; says which were written meanwhile."""
        spoiled = [slots for rows, slots, _ in self._poison if not bool((rows[slots] == POISON).all())]
        for block in {id(block): block for _, _, block in self._poison}.values():
            block.release()
        self._poison.clear()
        return [f"I/O wrote into {len(spoiled)} pools' free slots"] if spoiled else []

    def leave(self) -> None:
        """The attempt leaves, wherever it is, and its seat with it."""
        if self.running:
            self.life.finish(self.key)
        elif self.state not in ("aborted", "scheduled"):
            self.life.abort(self.key)
        self.running = False
        self.pools.unseat(self.key)

    def admit(self) -> None:
        """The attempt joins a batch."""
        self.life.admit(self.key)
        self.running = True

    def end(self) -> list[str]:
        """End everything: what is left then, or wrong, one line each."""
        self.resume()
        life, pools = self.life, self.pools
        for _ in range(4):
            self.step()
        while self._copied:
            node, owner = self._copied.pop()
            if life.node_state(node) == "loading":
                life.loaded_back(node, owner)
        self.leave()
        for _ in range(4):
            self.step()
        left = self.wrong()
        life.abort(self.beside)
        pools.drop_from_host(NODE)
        if pools.span_of(NODE) is not None:
            life.evict(NODE)
        left += [
            f"{slots} {pool} slots are not free at the end" for pool, slots in self.owned().items() if slots
        ]
        if not life.idle:
            left.append("the lifecycle is not idle at the end")
        return [*pools.disagreements(life), *left]
