"""Tells that the ranks stand still, and what they had decided by then, from a thread and without a collective.

Ranks that decide differently most often end in a collective of the engine that not all of them reach (#26921, #30760),
before the next comparison. Then each rank leaves what it has decided in the store they share, and reads the others'.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from hicache_fsm.ranks.difference import Difference, first_difference
from hicache_fsm.ranks.digest import Plain, RankDigest

LOOKS: Final = 4
"""How often a rank looks whether it stands still, in the time after which it says so."""
Kept = Mapping[int, Sequence[Plain]]
"""Decisions by pass."""


class StallWatch:
    """One rank's watch. `passed` belongs to the scheduler's thread, the rest to its own."""

    def __init__(
        self,
        digest: RankDigest,
        store: Any,
        *,
        name: str,
        rank: int,
        ranks: int,
        patience_s: float,
        busy: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        """`store` is a torch.distributed store of all ranks, `name` is this group's own in it.

        An engine that makes no pass for `patience_s` seconds while `busy` says that it should is told once, by
        `tell`, with the first decision that differs.
        """
        self._digest = digest
        self._store = store
        self._name = name
        self._rank = rank
        self._ranks = ranks
        self._patience_s = patience_s
        self._busy = busy
        self._tell = tell
        self._now = 0
        self._since = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hicache-fsm-ranks", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End without waiting for the thread, which may stand in a call of the store."""
        self._over.set()

    def passed(self, now: int, since: int) -> None:
        """Pass `now` has begun; all ranks were alike before pass `since`."""
        self._now = now
        self._since = since

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            self._tell(f"rank {self._rank} watches no more for ranks that stand still: {error!r}")

    def _watch(self) -> None:
        seen, stood, told = -1, 0, False
        while not self._over.wait(self._patience_s / LOOKS):
            now = self._now
            if now != seen:
                if told:
                    self._take_back()
                seen, stood, told = now, 0, False
                continue
            stood += 1
            if stood < LOOKS or told or now == 0 or not self._busy():
                continue
            told = True
            try:
                self._look(now)
            except RuntimeError:
                if self._now != now:  # it goes on, and decides while it is read
                    continue
                self._tell(f"rank {self._rank} stands still in pass {now}; the store of the ranks is gone")

    def _look(self, now: int) -> None:
        """Leave what this rank has decided, wait for the others to do so, and say what comes of it."""
        kept = self._digest.kept(self._since)
        self._store.set(self._place(self._rank), json.dumps({"pass": now, "kept": list(kept.items())}))
        places = {rank: self._place(rank) for rank in range(self._ranks)}
        for _ in range(2 * LOOKS):
            if self._store.check(list(places.values())) or self._over.wait(self._patience_s / LOOKS):
                break
        if self._over.is_set() or self._now != now:
            return
        found = {
            rank: json.loads(self._store.get(place))
            for rank, place in places.items()
            if self._store.check([place])
        }
        self._tell(told(found, self._ranks, self._patience_s))

    def _take_back(self) -> None:
        """The engine goes on: what was left must not be read at the next stand."""
        with suppress(RuntimeError):
            self._store.delete_key(self._place(self._rank))

    def _place(self, rank: int) -> str:
        return f"hicache_fsm/ranks/{self._name}/stands/{rank}"


def told(found: Mapping[int, Any], ranks: int, patience_s: float) -> str:
    """What ranks that stand still have left, by rank, in words; `ranks` is how many there are."""
    stand = ", ".join(f"rank {rank} in pass {one['pass']}" for rank, one in found.items())
    silent = ", ".join(f"rank {rank}" for rank in range(ranks) if rank not in found)
    says = f"no pass for {patience_s:.0f} s: {stand}" + (f"; nothing from {silent}" if silent else "")
    kept = {rank: dict(one["kept"]) for rank, one in found.items()}
    difference = first_of(kept)
    if difference is None:
        return f"{says}; no difference in what they had decided"
    return f"{says}; {difference}"


def first_of(kept: Mapping[int, Kept]) -> Difference | None:
    """The first difference in what ranks have kept of the same passes; the last pass may not be whole."""
    if len(kept) < 2:
        return None
    for pass_ in sorted({pass_ for one in kept.values() for pass_ in one}):
        decided = {rank: [_plain(one) for one in mine.get(pass_, ())] for rank, mine in kept.items()}
        difference = first_difference(pass_, decided)
        if difference is not None:
            return difference
    return None


def _plain(members: Sequence[Any]) -> Plain:
    machine, event, rid, attempt, tokens, op, facts, why = members
    return (machine, event, rid, attempt, tokens, op, facts, why)
