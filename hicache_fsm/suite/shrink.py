"""Makes a failing sequence small: parts of it leave while it still fails (delta debugging)."""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

TRIES: Final = 1500
"""How often a sequence is run again, at most, while it shrinks."""


def shrink(
    sequence: Sequence[T],
    fails: Callable[[Sequence[T]], bool],
    *,
    tries: int = TRIES,
    simpler: Callable[[T], Sequence[T]] = lambda each: (),
) -> list[T]:
    """The sequence without the parts that its failure does not need; the order stays.

    Chunks leave first, halves down to single elements, until none of them can; then each element is tried in the
    `simpler` forms that it has, in their order. `fails` judges a candidate and must say the same of the same
    sequence. It is called `tries` times at most: what is smallest by then is returned. Raises ValueError if the
    sequence itself does not fail.
    """
    judge = _Judge(fails, tries)
    kept = list(sequence)
    if not judge(kept):
        raise ValueError("the sequence does not fail, so there is nothing to shrink")
    size = max(1, len(kept) // 2)
    while True:
        smaller = _without_chunks(kept, size, judge)
        if size > 1:
            size = max(1, min(size // 2, len(smaller) // 2))
        elif len(smaller) == len(kept):
            return _simplified(kept, judge, simpler)
        kept = smaller


def _without_chunks(kept: list[T], size: int, judge: "_Judge[T]") -> list[T]:
    """One round from the end: what comes late is most often what the failure does not need."""
    start = len(kept) - size
    while kept and start > -size:
        candidate = kept[: max(0, start)] + kept[start + size :]
        if judge(candidate):
            kept = candidate
        start -= size
    return kept


def _simplified(kept: list[T], judge: "_Judge[T]", simpler: Callable[[T], Sequence[T]]) -> list[T]:
    for place, element in enumerate(kept):
        for form in simpler(element):
            candidate = [*kept[:place], form, *kept[place + 1 :]]
            if judge(candidate):
                kept = candidate
                break
    return kept


class _Judge(Generic[T]):
    """Counts the runs; once they are spent nothing fails any more, so nothing else leaves."""

    def __init__(self, fails: Callable[[Sequence[T]], bool], tries: int) -> None:
        self._fails = fails
        self._left = tries

    def __call__(self, candidate: Sequence[T]) -> bool:
        if self._left == 0:
            return False
        self._left -= 1
        return self._fails(candidate)
