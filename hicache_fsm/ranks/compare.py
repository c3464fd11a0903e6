"""Compares the ranks' digests with one small collective every so many passes, on a group of its own."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from hicache_fsm.ranks.difference import Difference, first_difference
from hicache_fsm.ranks.digest import ABSENT, Plain, RankDigest

NOTHING: Final = -1
"""Fills the gathered ring where a rank has fewer passes than it may have."""


WITHDRAWN: Final = 0
"""In place of the passes that a rank's digest keeps: it has none."""


class RanksError(RuntimeError):
    """Ranks cannot be compared: torch is missing, a rank did not answer, or they compare at different passes."""


def side_group(
    *, ranks: Sequence[int] | None = None, timeout_s: float = 60.0, members_only: bool = False
) -> Any:
    """A gloo group beside the engine's own, whose collectives wait `timeout_s` at most for a slow rank.

    A collective itself: every rank of the default group must call it, in the same order as its other groups;
    with `members_only` those of `ranks` do, so that several groups are made at once. `ranks` are those of the
    group, all by default. Raises RanksError if torch is missing or torch.distributed is not initialised.
    """
    dist = _distributed()
    return dist.new_group(
        ranks=None if ranks is None else list(ranks),
        backend="gloo",
        timeout=timedelta(seconds=timeout_s),
        use_local_synchronization=members_only,
    )


class RankComparison:
    """Compares this rank's digest with that of the other ranks of `group`, every `every` passes.

    Whether a comparison is due depends on the pass count alone, never on what a rank holds, so that all ranks
    reach its collectives or none does (#26921, #30760).
    """

    def __init__(self, digest: RankDigest, group: Any, *, every: int = 64, store: Any = None) -> None:
        """`store`, a torch.distributed store that all ranks share, lets an error name the ranks that did not come.

        Raises ValueError if the digest keeps fewer passes than lie between two comparisons, and RanksError if
        torch is missing.
        """
        if not 1 <= every <= digest.passes:
            raise ValueError(f"every must be from 1 to the {digest.passes} passes that the digest keeps")
        self._dist = _distributed()
        self._torch = _torch()
        self._digest = digest
        self._group = group
        self._store = store
        self._every = every
        self.since = 0
        """The pass of the last comparison: those before it are told."""
        self._next = every
        self.rank: int = self._dist.get_rank(group)
        self.ranks: int = self._dist.get_world_size(group)
        self.compared = 0
        self.broken = False
        self._withdrawn = False

    def passed(self, now: int) -> Difference | None:
        """Pass `now` has begun: call it once per pass, on every rank, right after `begin_pass`.

        Compares all passes before it if that is due. Returns the first difference since the last comparison;
        all ranks return the same one, and start over. Raises RanksError if a rank does not answer in the
        group's time or compares at another pass; `broken` is set then, and no pass compares again.
        """
        if now < self._next or self.broken:
            return None
        self._next = (now // self._every + 1) * self._every
        if not self._withdrawn:
            self._digest.close(now)
        try:
            if self._store is not None:
                self._store.set(self._place(self.rank), str(now))
            found = self._compare(now)
        except RanksError:
            self.broken = True
            raise
        except RuntimeError as error:
            self.broken = True
            raise RanksError(
                f"rank {self.rank} of {self.ranks}: no comparison at pass {now}, {self._missing(now)} died, hangs "
                f"or makes no passes: {_reason(error)}"
            ) from error
        self.since = now
        self.compared += 1
        return found

    def withdraw(self) -> None:
        """This rank has nothing to compare any more: the next comparison says so on all ranks, and is the last.

        `passed` is called as before until then, so that no rank waits for this one.
        """
        self._withdrawn = True

    def _missing(self, now: int) -> str:
        """Who has not come to the comparison of pass `now`, as far as the store tells."""
        if self._store is None:
            return "another rank has"
        try:
            absent = [rank for rank in range(self.ranks) if self._last(rank) < now]
        except RuntimeError:
            return "the rank that has the store, and perhaps another, has"
        named = ", ".join(f"rank {rank} (last at pass {self._last(rank)})" for rank in absent)
        return f"{named or 'another rank'} has"

    def _last(self, rank: int) -> int:
        place = self._place(rank)
        return int(self._store.get(place)) if self._store.check([place]) else 0

    def _place(self, rank: int) -> str:
        return f"hicache_fsm/ranks/{self._group.group_name}/{rank}"

    def _compare(self, now: int) -> Difference | None:
        kept = WITHDRAWN if self._withdrawn else self._digest.passes
        passes, keeps, digests = zip(*self._gather([now, kept, self._digest.digest]), strict=True)
        if gone := [f"rank {rank}" for rank, kept in enumerate(keeps) if kept == WITHDRAWN]:
            raise RanksError(f"{', '.join(gone)} compares no more from pass {now} on")
        if len(set(passes)) > 1:
            at = ", ".join(f"rank {rank} at pass {pass_}" for rank, pass_ in enumerate(passes))
            raise RanksError(f"ranks compare at different passes, {at}: call `passed` once per pass on each")
        if len(set(keeps)) > 1:
            raise RanksError("the ranks' digests keep different numbers of passes: make them alike")
        if len(set(digests)) == 1:
            return None
        found = self._find()
        self._digest.start_over()
        return found

    def _find(self) -> Difference:
        """The first decision that differs; without decisions if they are no longer kept by all."""
        pass_, lost = self._first_pass()
        mine = next((one.decisions for one in self._digest.since(pass_) if one.pass_ == pass_), ())
        decided: list[Sequence[Plain] | None] = [None] * self.ranks
        self._dist.all_gather_object(decided, mine, group=self._group)
        kept = {rank: one for rank, one in enumerate(decided) if one is not None}
        found = first_difference(pass_, kept) if not lost and len(kept) == self.ranks else None
        return found or Difference(pass_, 0, {})

    def _first_pass(self) -> tuple[int, bool]:
        """The first pass that is still kept after which the digests differ, and whether older ones are lost.

        The ring has the same size on all ranks, and all of them see all rings, so all come to the same answer.
        """
        size, since = self._digest.passes, self.since
        ring = [number for one in self._digest.since(since) for number in (one.pass_, one.digest)]
        told = self._gather(ring + [NOTHING] * (2 * size - len(ring)))
        after = [dict(zip(one[::2], one[1::2], strict=True)) for one in told]
        for one in after:
            one.pop(NOTHING, None)
        passes = sorted({pass_ for one in after for pass_ in one})
        first = next(pass_ for pass_ in passes if len({one.get(pass_, ABSENT) for one in after}) > 1)
        lost = any(len(one) == size and first <= min(one) and since < min(one) for one in after)
        return first, lost

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        """Every rank's numbers, by rank, which are as many on all."""
        mine = self._torch.tensor(numbers, dtype=self._torch.int64)
        told = [self._torch.empty_like(mine) for _ in range(self.ranks)]
        self._dist.all_gather(told, mine, group=self._group)
        return [one.tolist() for one in told]


def _reason(error: RuntimeError) -> str:
    """What gloo says, without its source places and its advice."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rpartition(".cc:")[2].partition("] ")[2].partition(". ")[0] or lines[0]


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise RanksError('comparing ranks needs torch: pip install "hicache-fsm[torch]"') from error
    return torch


def _distributed() -> Any:
    dist = _torch().distributed
    if not dist.is_available() or not dist.is_initialized():
        raise RanksError("comparing ranks needs torch.distributed: call init_process_group first")
    return dist
