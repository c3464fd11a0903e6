"""One rank of a small engine on real processes: `python ranks_world.py RANK RANKS FOLDER SCENARIO...`.

All ranks see the same arrivals. Storage answers in the order of the questions, each after a number of passes; a
scenario says what one rank does differently. Writes what the rank found to FOLDER/RANK.json, and its event logs.
"""

import json
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from hicache_fsm.ranks import Decisions, RankComparison, RankDigest, RanksError, side_group
from hicache_fsm.runtime import Anchor, AttemptKey, Completion, EventLog, HiCacheLifecycle
from hicache_fsm.spec import load_spec

SPEC = load_spec()
PAGE = 16
PASSES = {2: 160, 4: 64}
"""By the number of ranks."""
EVERY = 16
ASKED = 96
WAIT_MS = 8.0


@dataclass(frozen=True)
class Scenario:
    """What the odd rank does; answers are agreed on by their minimum if `agreed`.

    `late` passes are added to every 7th answer of the odd rank, `short` makes every 11th answer hold 32 tokens less
    there; `work` is hashing done per pass, `idle` an engine without requests; `pass_ms` is what a pass takes by the odd
    rank's clock if pacing goes by it.
    """

    agreed: bool = False
    late: int = 0
    short: bool = False
    work: int = 0
    idle: bool = False
    pass_ms: float = 0.0


SCENARIOS = {
    "equal": Scenario(),
    "idle": Scenario(idle=True),
    "slowed": Scenario(work=300),
    "late": Scenario(late=3),
    "late agreed": Scenario(late=3, agreed=True),
    "short": Scenario(short=True),
    "short agreed": Scenario(short=True, agreed=True),
    "clock": Scenario(pass_ms=2.5),
}


@dataclass
class Answer:
    """An answer on its way: due in pass `due`."""

    op: int
    event: Any
    tokens: int
    due: int


@dataclass
class Engine:
    """One rank's scheduler."""

    rank: int
    ranks: int
    odd: bool
    scenario: Scenario
    life: HiCacheLifecycle
    draw: random.Random = field(default_factory=lambda: random.Random(7))
    answers: deque[Answer] = field(default_factory=deque)
    asked: dict[int, AttemptKey] = field(default_factory=dict)
    queue: dict[AttemptKey, int] = field(default_factory=dict)
    running: dict[AttemptKey, int] = field(default_factory=dict)
    missed_ms: dict[AttemptKey, float] = field(default_factory=dict)
    clock_ms: float = 0.0
    arrived: int = 0

    def step(self) -> list[AttemptKey]:
        """Take in what storage answered, begin the pass."""
        ready = self.ready()
        for answer in ready:
            self.life.post(
                Completion(answer.op, answer.event, answer.tokens, ASKED if answer.event == "hit" else 0)
            )
        offers = self.life.begin_pass(drain=len(ready))
        now = self.life.now
        self.clock_ms += self.scenario.pass_ms if self.odd and self.scenario.pass_ms else 1.0
        for answer in ready:
            key = self.asked[answer.op]
            if answer.event == "hit" and self.life.operation(key) == answer.op:
                self.answers.append(Answer(answer.op, "done", 0, now + 2 + self.lag(answer.op)))
            elif answer.event == "miss":
                self.missed_ms.setdefault(key, self.clock_ms)
        return offers

    def ready(self) -> list[Answer]:
        """The answers to take in: of those that are here, as many and as much as all ranks have if they agree."""
        here = []
        for answer in self.answers:
            if answer.due > self.life.now + 1:
                break
            here.append(answer)
        count = self.least([len(here)])[0] if self.scenario.agreed else len(here)
        ready = [self.answers.popleft() for _ in range(count)]
        if self.scenario.agreed and ready:
            for answer, tokens in zip(ready, self.least([one.tokens for one in ready]), strict=True):
                if answer.event != "done":
                    answer.tokens, answer.event = tokens, "hit" if tokens else "miss"
        return ready

    def least(self, numbers: list[int]) -> list[int]:
        """The minimum over all ranks, as upstream agrees on what to drain."""
        agreed = torch.tensor(numbers)
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN)
        return agreed.tolist()

    def schedule(self, offers: list[AttemptKey]) -> None:
        """Everything that the scheduler decides in this pass."""
        now = self.life.now
        for _ in range(self.draw.randrange(3)):
            key = self.life.enqueue(f"r{self.arrived}", ASKED + 16 * self.draw.randrange(4))
            self.arrived += 1
            self.queue[key] = now
            self.ask(key)
        for key in offers:
            since_ms = self.missed_ms.setdefault(key, self.clock_ms)
            if not self.scenario.pass_ms or self.clock_ms - since_ms >= WAIT_MS:
                self.missed_ms.pop(key, None)
                self.ask(key)
        for key, since in list(self.queue.items()):
            state = self.life.state(key)
            if state == "loaded" or (
                now - since > 40 and state in ("queued", "missed", "pending", "exhausted")
            ):
                del self.queue[key]
                self.life.admit(key)
                self.running[key] = now + 5
            elif self.draw.random() < 0.01:
                del self.queue[key]
                self.life.abort(key)
        for key in [key for key, end in self.running.items() if end <= now]:
            del self.running[key]
            self.life.finish(key)

    def ask(self, key: AttemptKey) -> None:
        """Put a question to storage; the answer depends on the question alone, but on the odd rank."""
        op = self.life.issue(key, anchor=Anchor(f"node {len(self.asked) % 9}", 48))
        if op is None:
            return
        self.asked[op] = key
        fate = int.from_bytes(sha256(f"{key.rid} {op}".encode()).digest()[:2], "big")
        tokens = (0, 0, ASKED, ASKED - 16)[fate % 4]
        if self.odd and self.scenario.short and tokens and op % 11 == 0:
            tokens -= 32
        event = "hit" if tokens else "miss"
        self.answers.append(Answer(op, event, tokens, self.life.now + 1 + fate % 3 + self.lag(op)))

    def lag(self, op: int) -> int:
        return self.scenario.late if self.odd and op % 7 == 0 else 0

    def work(self) -> None:
        """What makes a rank slower, and nothing else."""
        if self.odd:
            digest = b""
            for _ in range(self.scenario.work):
                digest = sha256(digest * 100).digest()


def run(name: str, rank: int, ranks: int, odd: int, folder: Path, group: Any) -> dict[str, object]:
    """One scenario from its beginning: the first difference, and how far the ranks had come when they saw it."""
    scenario = SCENARIOS[name]
    log = EventLog(folder / f"{name}.rank{rank}.jsonl", rank=rank, ranks=ranks)
    life = HiCacheLifecycle(
        "recommended",
        pool_tokens=4096,
        max_context_len=1024,
        page_size=PAGE,
        interval=1 if scenario.pass_ms else 4,
        max_attempts=3,
        on_illegal="enforce",
        log=log,
        spec=SPEC,
    )
    digest = RankDigest(passes=64)
    Decisions(life, digest)
    comparison = RankComparison(digest, group, every=EVERY)
    engine = Engine(rank, ranks, rank == odd, scenario, life)
    found: list[tuple[int, Any]] = []
    for _ in range(PASSES[ranks]):
        engine.work()
        offers = engine.step()
        difference = comparison.passed(life.now)
        if difference is not None:
            found.append((life.now, difference))
        if not scenario.idle:
            engine.schedule(offers)
    life.close()
    digest.close(life.now + 1)
    first = found[0] if found else None
    return {
        "compared": comparison.compared,
        "decided": digest.decided,
        "digest": digest.digest,
        "differences": len(found),
        "seen_in_pass": first and first[0],
        "difference": first and first[1].as_json(),
        "told": first and str(first[1]),
    }


def refused(call: Callable[[], object]) -> dict[str, object]:
    """What a comparison says that cannot be made, and how many seconds it took to say so."""
    began = time.monotonic()
    try:
        call()
    except RanksError as error:
        return {"error": str(error), "seconds": time.monotonic() - began}
    return {"error": "", "seconds": time.monotonic() - began}


def at_different_passes(rank: int, group: Any) -> dict[str, object]:
    comparison = RankComparison(RankDigest(), group, every=EVERY)
    return refused(lambda: comparison.passed(EVERY * (1 + rank)))


def with_a_rank_that_withdraws(rank: int, group: Any) -> dict[str, object]:
    comparison = RankComparison(RankDigest(), group, every=EVERY)
    if rank == 1:
        comparison.withdraw()
    told = refused(lambda: comparison.passed(EVERY))
    return told | {"again": comparison.passed(2 * EVERY)}


def of_what_is_no_longer_kept(rank: int, group: Any) -> dict[str, object]:
    """Ranks differ from pass 1 on: once too many passes ago, and once with too many decisions since."""

    def decided(digest: RankDigest, now: int, tokens: int) -> None:
        digest.decide(now, ("prefetch", "hit", "r", 0, tokens, 1, "", ""))

    old = RankDigest(passes=8)
    for now in range(1, 40):
        decided(old, now, tokens=rank)
    crowded = RankDigest(passes=8, decisions=4)
    decided(crowded, 1, tokens=rank)
    for now in (2, 2, 2, 2, 3):
        decided(crowded, now, tokens=7)
    return {
        "passes": str(RankComparison(old, group, every=8).passed(40)),
        "decisions": str(RankComparison(crowded, group, every=8).passed(8)),
        "unlike": refused(lambda: RankComparison(RankDigest(passes=8 + rank), group, every=8).passed(8))[
            "error"
        ],
    }


def with_a_rank_that_hangs(rank: int, store: Any) -> dict[str, object]:
    """The last rank makes no more passes, though it lives; the others wait for it as long as the group says."""
    group = side_group(timeout_s=2.0)
    comparison = RankComparison(RankDigest(), group, every=EVERY, store=store)
    told = refused(lambda: comparison.passed(EVERY)) if rank == 0 else {}
    told["again"] = comparison.passed(2 * EVERY) if rank == 0 else None
    told["broken"] = comparison.broken
    dist.barrier()
    return told


def with_a_rank_that_dies(rank: int, write: Callable[[dict[str, object]], None]) -> dict[str, object]:
    group = side_group(timeout_s=20.0)
    comparison = RankComparison(RankDigest(), group, every=EVERY)
    dist.barrier()
    if rank != 0:
        write({})
        os._exit(0)
    return refused(lambda: comparison.passed(EVERY))


def main() -> None:
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    odd = ranks - 2 if ranks > 2 else 1
    store = dist.FileStore(f"{folder}/store", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    group = side_group(timeout_s=60.0)
    results: dict[str, object] = {}

    def write(last: dict[str, object]) -> None:
        (folder / f"{rank}.json").write_text(json.dumps(results | {"dies": last}))

    for name in sys.argv[4:]:
        if name in SCENARIOS:
            results[name] = run(name, rank, ranks, odd, folder, group)
        elif name == "passes":
            results[name] = at_different_passes(rank, group)
        elif name == "withdraws":
            results[name] = with_a_rank_that_withdraws(rank, group)
        elif name == "forgotten":
            results[name] = of_what_is_no_longer_kept(rank, group)
        elif name == "hangs":
            results[name] = with_a_rank_that_hangs(rank, store)
        else:
            write(with_a_rank_that_dies(rank, write))
            os._exit(0)
    write({})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
