"""Ranks that stand still say so, with the first decision that differs, and without a collective."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from hicache_fsm.ranks import RankDigest, StallWatch

distributed = pytest.importorskip("torch.distributed", reason="ranks need the extra torch")
PATIENCE_S = 0.2
SWEEP = ("prefetch", "sweep", "r2", 0, 74, 16, ',"facts":{"asks":true}', "")
FINISH = ("prefetch", "finish", "r1", 0, 0, 0, "", "")


@dataclass
class Rank:
    """One rank's watch, in a thread of this process."""

    digest: RankDigest
    watch: StallWatch
    lines: list[str] = field(default_factory=list)
    told: threading.Event = field(default_factory=threading.Event)

    def line(self) -> str:
        assert self.told.wait(30)
        return self.lines[-1]


Make = Callable[..., Rank]


@pytest.fixture
def make() -> Iterator[Make]:
    """``make(rank, busy=...)``: a rank of two that share a store."""
    store = distributed.HashStore()
    made: list[Rank] = []

    def one(rank: int, busy: Callable[[], bool] = lambda: True) -> Rank:
        digest = RankDigest()

        def tell(line: str) -> None:
            mine.lines.append(line)
            mine.told.set()

        watch = StallWatch(
            digest, store, name="g", rank=rank, ranks=2, patience_s=PATIENCE_S, busy=busy, tell=tell
        )
        mine = Rank(digest, watch)
        made.append(mine)
        return mine

    yield one
    for mine in made:
        mine.watch.stop()


def stand(rank: Rank, now: int, *decisions: Any) -> None:
    """The rank decides something in pass `now` and makes no further one."""
    for decision in decisions:
        rank.digest.decide(now, decision)
    rank.watch.passed(now, 1)
    rank.watch.start()


def test_the_first_decision_that_differs_is_named_on_all_ranks(make: Make) -> None:
    """#26921, #30760: ranks that part wait in a collective that not all of them reach."""
    first, second = make(0), make(1)
    stand(first, 28, FINISH, SWEEP)
    stand(second, 28, FINISH)
    for line in (first.line(), second.line()):
        assert line.startswith(
            "no pass for 0 s: rank 0 in pass 28, rank 1 in pass 28; ranks differ first in pass 28"
        )
        assert "\n  rank 0: prefetch sweep r2#0: 74 tokens, operation 16, asks:true" in line
        assert "\n  rank 1: nothing more in this pass" in line


def test_ranks_that_decided_alike_are_said_to_have(make: Make) -> None:
    first, second = make(0), make(1)
    stand(first, 28, FINISH)
    stand(second, 28, FINISH)
    assert first.line().endswith("no difference in what they had decided")


def test_a_rank_that_left_nothing_is_named(make: Make) -> None:
    first = make(0)
    stand(first, 28, FINISH)
    assert "rank 0 in pass 28; nothing from rank 1; no difference" in first.line()


def test_an_engine_without_work_may_stand(make: Make) -> None:
    asked = threading.Semaphore(0)

    def busy() -> bool:
        asked.release()
        return False

    first = make(0, busy)
    stand(first, 28, FINISH)
    for _ in range(3):
        assert asked.acquire(timeout=30)
    assert first.lines == []


def test_what_was_left_at_an_older_stand_is_taken_back(make: Make) -> None:
    first, second = make(0), make(1)
    stand(first, 28, FINISH, SWEEP)
    first.line()
    first.told.clear()
    first.watch.passed(29, 29)
    first.digest.close(29)
    assert first.told.wait(30)
    stand(second, 29)
    assert "pass 28" not in second.line()


def test_a_watch_that_cannot_look_says_so_in_one_line(make: Make) -> None:
    def busy() -> bool:
        raise AttributeError("no running batch")

    rank = make(0, busy)
    stand(rank, 3, SWEEP)
    assert rank.line() == (
        "rank 0 watches no more for ranks that stand still: AttributeError('no running batch')"
    )
