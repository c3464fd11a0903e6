"""Storage that answers in scheduling passes, on several ranks: they settle together, pass by pass.

Between ranks the I/O threads agree by collectives of their own, so that a thread may have to wait for one of
another rank, which is held inside a storage call. A pass begins when no thread of any rank can go on.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from ..settings import IoLatency
from .pacing import FEEDS, THREADS, IoClock, SettleError

MOVES, AGREES, RESTS = range(3)
"""What a thread does: works, waits in a collective, or sleeps on its queue or is held in a storage call."""


class RankedClock(IoClock):
    """One rank's share of a pacing that is common to all. Making one is a collective of all ranks."""

    def __init__(self, controller: Any, latency: IoLatency, *, settle_limit_s: float = 60.0) -> None:
        super().__init__(controller, latency, settle_limit_s=settle_limit_s)
        self._group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=2 * settle_limit_s))
        self._entered: Counter[int | None] = Counter()
        self._left: Counter[int | None] = Counter()
        controller._all_reduce = self._counted(controller._all_reduce)

    def _counted(self, reduce: Any) -> Any:
        """The I/O threads' collective, counted by thread."""

        @functools.wraps(reduce)
        def counted(*args: Any, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            self._entered[thread] += 1
            try:
                return reduce(*args, **kwargs)
            finally:
                self._left[thread] += 1

        return counted

    def begin_pass(self) -> None:
        """As on one rank; every rank must come. Raises ``SettleError`` when a thread is stuck."""
        self.now += 1
        self._gate.set()
        self._settle()
        for thread in reversed(THREADS):
            self._let_go(thread)
            self._settle()  # on all ranks, whether or not this one had a call to let go
        self._gate.clear()

    def _settle(self) -> None:
        give_up = time.monotonic() + self._limit_s
        while True:
            mine = torch.tensor([self._doing(*pair, give_up) for pair in zip(FEEDS, THREADS, strict=True)])
            told = [torch.empty_like(mine) for _ in range(distributed.get_world_size(self._group))]
            distributed.all_gather(told, mine, group=self._group)
            if all(settled([rank[place].tolist() for rank in told]) for place in range(len(THREADS))):
                return
            if time.monotonic() > give_up:
                raise SettleError(f"the ranks' I/O threads did not settle within {self._limit_s:.0f} s")
            self._gate_pause()

    def _doing(self, feed: str, name: str, give_up: float) -> list[int]:
        """What a thread does once it does not move, and how many collectives it has entered."""
        thread = getattr(self._controller, name)
        while True:
            if self._at_rest(feed, name):
                return [RESTS, self._entered[thread.ident]]
            entered = self._entered[thread.ident]
            if entered > self._left[thread.ident]:
                return [AGREES, entered]
            if not thread.is_alive():
                raise SettleError(f"{name} has ended: SGLang will never take its work up again")
            if time.monotonic() > give_up:
                return [MOVES, entered]
            self._gate_pause()


def settled(ranks: list[list[int]]) -> bool:
    """Whether one thread, by what it does on each rank and its collectives there, cannot go on by itself anywhere.

    In a collective it waits only if on some rank it rests and has not come to that collective.
    """
    last = min((entered for doing, entered in ranks if doing == RESTS), default=None)
    return all(
        doing == RESTS or (doing == AGREES and last is not None and entered > last)
        for doing, entered in ranks
    )
