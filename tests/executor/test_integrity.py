"""What is fetched equals what was written, byte for byte, however slots are evicted and used again."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
import torch
from executor_support import PAGE, SIZES, World, world
from hypothesis import event, given, settings
from hypothesis import strategies as st

from hicache_fsm.executor.embedding import evict, make_room
from hicache_fsm.executor.errors import OwnershipError, PoolExhaustedError
from hicache_fsm.executor.host import HostPool
from hicache_fsm.executor.rig import PlantedError, UnsureStore
from hicache_fsm.executor.slots import Block
from hicache_fsm.runtime import AttemptKey

TIGHT = replace(SIZES, device_tokens=40, host_pages=5)
TIGHT_HYBRID = replace(TIGHT, layout="hybrid", swa_tokens=40)
PREFIXES = 3
STEPS = (
    *("make", "make", "write", "write", "evict", "evict", "ask", "ask", "turn", "turn", "turn", "turn"),
    *("cut", "abort", "admit", "admit", "finish", "finish", "finish", "hold", "let", "let"),
    *("round", "round", "round", "retract", "flush", "detach", "broken", "arm", "arm"),
)
EFFECTS = (
    *("ask", "take_pages", "end_operation", "stage_hold", "free_pages", "orphan_operation", "cut_operation"),
    *("free_orphan_pages", "consume_hold", "release_hold", "launch_write", "settle_write"),
)
Step = tuple[str, int, int]
T = TypeVar("T")


def names(prefix: int, pages: int) -> tuple[str, ...]:
    return tuple(f"{prefix}.{page}" for page in range(pages))


def content(part: str, prefix: int, pages: int) -> torch.Tensor:
    """What a prefix has in one part, shape (tokens, width): a function of its name and nothing else."""
    seed = 2 * prefix + (part == "swa")
    whole = torch.rand((4 * PAGE, SIZES.width), generator=torch.Generator().manual_seed(seed))
    return whole[: pages * PAGE]


@dataclass
class Player:
    """Plays steps on small pools; each request asks for a prefix and checks what it got."""

    made: World
    store: UnsureStore

    def __post_init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.waiting: list[tuple[AttemptKey, int]] = []
        self.running: list[AttemptKey] = []
        self.nodes: dict[str, int] = {}
        self.number = 0

    def play(self, step: str, prefix: int, pages: int) -> None:
        getattr(self, step)(prefix, pages)
        assert self.made.pools.disagreements(self.made.life) == []

    def event(self, call: Callable[[], T]) -> T:
        """Bring an event about; one whose effect was made to raise is tried again."""
        try:
            return call()
        except PlantedError:
            self.made.executor.armed = None
            self.seen["effects raised"] += 1
            return call()

    def arm(self, prefix: int, pages: int) -> None:
        """The next effect of that name raises, before or after it has acted."""
        self.number += 1
        effect = EFFECTS[prefix * 4 + pages - 1]
        self.made.executor.armed = effect, "after" if self.number % 2 else "before"

    def make(self, prefix: int, pages: int) -> None:
        """The prefix is computed: a node of its own."""
        if f"{prefix}" in self.nodes or self.made.pools.device.free_tokens < pages * PAGE:
            return
        self.number += 1
        key = self.made.enqueue(f"maker {self.number}", *names(prefix, pages))
        span = self.made.pools.seat(key, pages * PAGE)
        self.made.life.admit(key)
        for part, block in zip(self.made.pools.parts, span.blocks, strict=True):
            self.made.pools.device.fill(part, block, content(part, prefix, pages))
        self.made.pools.plant(key, f"{prefix}", names(prefix, pages))
        self.made.finish(key)
        self.nodes[f"{prefix}"] = pages

    def write(self, prefix: int, pages: int) -> None:
        if f"{prefix}" not in self.nodes:
            return
        for part in self.made.pools.parts:
            try:
                chain = names(prefix, min(pages, self.nodes[f"{prefix}"]))
                self.event(lambda part=part, chain=chain: self.made.life.write(part, chain))
            except PoolExhaustedError:
                self.seen["write refused"] += 1

    def evict(self, prefix: int, pages: int) -> None:
        """The node goes, unless it is pinned; whatever raises meanwhile, nothing is left to hang on it."""
        if f"{prefix}" in self.made.pools.evictable():
            try:
                evict(self.made.life, self.made.pools, f"{prefix}")
            except PlantedError:
                self.made.executor.armed = None
                make_room(self.made.life, self.made.pools, 0)
                self.seen["effects raised"] += 1
            del self.nodes[f"{prefix}"]
            assert self.made.pools.stranded() == []

    def ask(self, prefix: int, pages: int) -> None:
        """A request asks for all its pages, or for those that the device lacks."""
        self.number += 1
        key = self.made.enqueue(f"r{self.number}", *names(prefix, pages))
        self.waiting.append((key, prefix))
        if self.number % 2:
            self.event(lambda: self.made.life.issue(key))
        else:
            self.again(key)

    def again(self, key: AttemptKey) -> None:
        """Ask for what neither the device nor a hold has."""
        anchor, missing = self.made.pools.match(key)
        why = "" if missing else "too_short"
        self.event(
            lambda: self.made.life.issue(key, asks=missing > 0, why=why, tokens=missing, anchor=anchor)
        )
        self.seen["behind a node"] += anchor is not None and missing > 0

    def turn(self, prefix: int, pages: int) -> None:
        """One scheduling pass."""
        held = self.made.pools.copies.paused or self.made.pools.storage.paused
        self.made.pools.drain(wait=not held)
        for key in self.event(self.made.life.begin_pass):
            self.again(key)
        for key, _ in self.waiting:
            if self.made.life.state(key) == "parked":
                self.event(lambda key=key: self.made.life.unparked(key))

    def round(self, prefix: int, pages: int) -> None:
        """What it takes to fetch a prefix, in order; each step may be refused."""
        for step in ("make", "write", "turn", "turn", "ask", "turn", "turn", "evict"):
            self.play(step, prefix, pages)

    def cut(self, prefix: int, pages: int) -> None:
        for key, _ in self.waiting:
            if self.made.life.state(key) == "transferring":
                read = self.made.pools.read_tokens(self.made.life.operation(key) or 0)
                self.event(lambda key=key, read=read: self.made.life.cut(key, read))
                self.seen["cut"] += 1
                return

    def abort(self, prefix: int, pages: int) -> None:
        if self.waiting:
            key, _ = self.waiting.pop(prefix % len(self.waiting))
            self.event(lambda: self.made.life.abort(key))

    def admit(self, prefix: int, pages: int) -> None:
        """Admit one, and compare what its hold brought with what the prefix has."""
        loaded_first = sorted(self.waiting, key=lambda one: self.made.life.state(one[0]) != "loaded")
        for key, asked in loaded_first:
            tokens = PAGE * len(self.made.chains[key.rid])
            busy = self.made.life.state(key) in ("probing", "retrying", "parked", "transferring")
            if busy or self.made.pools.device.free_tokens < tokens:
                continue
            self.waiting.remove((key, asked))
            span = self.made.pools.seat(key, tokens)
            shared = self.made.pools.known_tokens(key)
            got = self.event(lambda key=key: self.made.life.admit(key))
            self.running.append(key)
            if known := self.made.pools.known_tokens(key):
                self.let(prefix, pages)
                self.made.pools.drain(wait=True)
                for part, block in zip(self.made.pools.parts, span.blocks, strict=True):
                    rows = self.made.pools.device.load(part, block)[:known]
                    assert torch.equal(rows, content(part, asked, known // PAGE)), "fetched rows differ"
            self.seen["compared"] += got > 0
            self.seen["behind a prefix"] += 0 < shared < known
            return

    def finish(self, prefix: int, pages: int) -> None:
        if self.running:
            self.made.finish(self.running.pop())

    def retract(self, prefix: int, pages: int) -> None:
        if self.running:
            key = self.running.pop()
            self.made.pools.unseat(key)
            again = self.made.life.retract(key)
            assert again is not None
            self.waiting.append((again, int(self.made.chains[key.rid][0].split(".")[0])))
            self.again(again)
            self.seen["retracted"] += 1

    def flush(self, prefix: int, pages: int) -> None:
        self.event(self.made.life.flush)

    def detach(self, prefix: int, pages: int) -> None:
        """The backend goes, and comes back."""
        self.event(self.made.life.detach)
        self.made.life.attach()

    def broken(self, prefix: int, pages: int) -> None:
        """Storage fails a write and a question."""
        self.store.broken = True
        for step in ("write", "ask", "turn"):
            self.play(step, prefix, pages)
        self.store.broken = False

    def hold(self, prefix: int, pages: int) -> None:
        (self.made.pools.copies if prefix % 2 else self.made.pools.storage).pause()

    def let(self, prefix: int, pages: int) -> None:
        self.made.pools.copies.resume()
        self.made.pools.storage.resume()

    def end(self) -> None:
        self.made.executor.armed = None
        self.let(0, 0)
        for key, _ in self.waiting:
            self.made.life.abort(key)
        for key in self.running:
            self.made.finish(key)
        while self.made.pools.in_flight or not self.made.life.idle:
            self.made.step()
        self.made.step()
        for node in self.nodes:
            evict(self.made.life, self.made.pools, node)
        assert self.made.pools.empty


LIVES = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, PREFIXES - 1), st.integers(1, 4)),
    min_size=30,
    max_size=80,
)


def live(steps: list[Step], sizes: Any) -> Counter[str]:
    """Play one life to its end; what happened in it."""
    store = UnsureStore()
    with world(sizes, store) as made:
        player = Player(made, store)
        for step in steps:
            player.play(*step)
        player.end()
    player.seen.update({"storage errors": store.failures} if store.failures else {})
    return player.seen


@settings(max_examples=50, deadline=None, derandomize=True)
@given(LIVES, st.sampled_from([TIGHT, TIGHT_HYBRID]))
def test_what_is_fetched_is_what_was_written(steps: list[Step], sizes: Any) -> None:
    for what in live(steps, sizes):
        event(what)


def long_lives(sizes: Any) -> Counter[str]:
    """Twelve lives of 300 steps, the same on every run but for the pace of the threads."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        rng = random.Random(seed)
        seen += live(
            [(rng.choice(STEPS), rng.randrange(PREFIXES), rng.randint(1, 4)) for _ in range(300)], sizes
        )
    return seen


@pytest.mark.parametrize("sizes", [TIGHT, TIGHT_HYBRID], ids=["dense", "hybrid"])
def test_long_lives_fetch_often_and_always_what_was_written(sizes: Any) -> None:
    seen = long_lives(sizes)
    assert seen["compared"] >= 40, seen
    assert min(seen[what] for what in ("retracted", "storage errors", "effects raised")) >= 20, seen
    assert min(seen[what] for what in ("cut", "behind a prefix")) >= 3, seen


def test_pages_copied_to_the_wrong_slots_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = HostPool.to_device

    def turned(self: HostPool, device: Any, name: str, pages: Any, slots: Any) -> None:
        sound(self, device, name, pages, slots.flip(0))

    monkeypatch.setattr(HostPool, "to_device", turned)
    with pytest.raises(AssertionError, match="fetched rows differ"):
        long_lives(TIGHT)


def test_a_slot_handed_out_while_a_thread_still_writes_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Block, "release", lambda block: block._pool._reclaim(block))
    with pytest.raises((AssertionError, OwnershipError)):
        long_lives(TIGHT)
