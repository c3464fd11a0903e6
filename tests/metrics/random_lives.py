"""Random lives of requests, legal and illegal events alike, to hold metrics up to what really happened."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

from hicache_fsm.runtime import Anchor, AttemptKey, Completion, EventLog, HiCacheLifecycle
from hicache_fsm.spec import Spec, load_spec

SPEC = load_spec()
PAGE = 16


def lifecycle(log: Path | None = None, profile: str = "recommended", **options: Any) -> HiCacheLifecycle:
    """A lifecycle that counts illegal events and goes on."""
    settings: dict[str, Any] = {
        "pool_tokens": 2048,
        "max_context_len": 1024,
        "host_tokens": 512,
        "page_size": PAGE,
        "interval": 2,
        "max_attempts": 3,
        "monitor": True,
        "on_illegal": "enforce",
        "log": None if log is None else EventLog(log),
        "spec": SPEC,
    }
    return HiCacheLifecycle(profile, **(settings | options))


class Lives:
    """Drives one lifecycle; `keys` are all attempts that ever were."""

    def __init__(self, life: HiCacheLifecycle, seed: int) -> None:
        self.life = life
        self.draw = random.Random(seed)
        self.keys: list[AttemptKey] = []
        self.ops: list[int] = []

    def run(self, steps: int) -> None:
        """Take so many random steps, a pass among them."""
        for _ in range(steps):
            getattr(self, self.draw.choices(*zip(*ACTIONS.items(), strict=True))[0])()

    def states(self, spec: Spec = SPEC) -> Counter[str]:
        """How many attempts wait in each state, asked one by one."""
        terminal = spec.machines["prefetch"].terminal
        told = (self.life.state(key) for key in set(self.keys))
        return Counter(state for state in told if state is not None and state not in terminal)

    def enqueue(self) -> None:
        rid = f"r{self.draw.randrange(60)}"
        self.keys.append(self.life.enqueue(rid, 96))

    def issue(self) -> None:
        for key in self.some():
            asks = self.draw.random() < 0.8
            why = "" if asks else self.draw.choice(["too_short", "rate_limited"])
            op = self.life.issue(
                key, asks=asks, why=why, anchor=Anchor(f"node {key.rid}", self.draw.choice([48, 400, 1200]))
            )
            if op is not None:
                self.ops.append(op)

    def answer(self) -> None:
        """A late answer, in any state."""
        for op in self.ops[-12:]:
            event = self.draw.choice(["hit", "miss", "done", "fail"])
            tokens = self.draw.choice([32, 96]) if event == "hit" else 0
            self.life.post(Completion(op, event, tokens, 96))  # type: ignore[arg-type]

    def leave(self) -> None:
        for key in self.some():
            getattr(self.life, self.draw.choice(["admit", "admit", "abort", "abandon"]))(key)

    def leave_batch(self) -> None:
        for key in self.some(6):
            if self.draw.random() < 0.6:
                self.life.finish(key)
            else:
                again = self.life.retract(key)
                self.keys += [] if again is None else [again]

    def disturb(self) -> None:
        for key in self.some():
            event = self.draw.choice(
                ["cut", "expire", "revoke", "shrink", "lose_anchor", "lose_match", "unparked"]
            )
            getattr(self.life, event)(key)

    def cache(self) -> None:
        pages = [f"page {self.draw.randrange(20)}" for _ in range(4)]
        self.life.stored("kv", self.life.write("kv", pages))
        if self.draw.random() < 0.3:
            self.life.deny("kv", pages[:2])
        if self.draw.random() < 0.3:
            self.life.discard("kv", pages, 2, [])
        self.life.evict(f"node r{self.draw.randrange(60)}")

    def reset(self) -> None:
        self.life.flush()

    def step(self) -> None:
        self.life.begin_pass()

    def some(self, count: int = 3) -> list[AttemptKey]:
        newest = self.keys[-40:]
        return self.draw.sample(newest, min(count, len(newest)))


ACTIONS = {
    "enqueue": 10,
    "issue": 10,
    "answer": 8,
    "leave": 3,
    "leave_batch": 3,
    "disturb": 3,
    "cache": 2,
    "reset": 0.1,
    "step": 12,
}
"""How often each comes up."""
