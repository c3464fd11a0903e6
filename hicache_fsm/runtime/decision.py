"""The table of a machine as decision trees over live guards, with what a profile settles folded in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hicache_fsm.machine import Row
from hicache_fsm.runtime.attempt import Attempt
from hicache_fsm.runtime.guards import Guard, Moment

Leaf = TypeVar("Leaf")
Effect = Callable[[Attempt, Moment], None]
BulkEffect = Callable[[Sequence[Attempt], Moment], None]


@dataclass(frozen=True, slots=True, eq=False)
class Fork(Generic[Leaf]):
    """One guard that the decision hangs on: where to go if it holds, and where if not."""

    holds: Guard
    yes: "Fork[Leaf] | Leaf"
    no: "Fork[Leaf] | Leaf"


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A decided transition, ready to be taken.

    `first` are the parts of its effects that may fail, `second` those that book them, `bulk` those that book them
    for many attempts at once, None where there are none or something may fail; `moves` says whether the
    state changes, `ends` whether the attempt is over; `text` is its machine and event as log text.
    """

    row: Row
    event: int
    first: tuple[Effect, ...]
    second: tuple[Effect, ...]
    bulk: tuple[BulkEffect, ...] | None
    dest: int
    moves: bool
    ends: bool
    text: str


def grow(
    guards: Sequence[tuple[int, Guard | bool]], leaf: Callable[[int], Leaf], truth: int = 0
) -> Fork[Leaf] | Leaf:
    """The tree that leads to `leaf(truth)` for the guards that hold; a guard is (its bit, how to ask it).

    A guard that is a bool is settled, and one that makes no difference is not asked.
    """
    if not guards:
        return leaf(truth)
    (bit, holds), rest = guards[0], guards[1:]
    if isinstance(holds, bool):
        return grow(rest, leaf, truth | bit if holds else truth)
    yes, no = grow(rest, leaf, truth | bit), grow(rest, leaf, truth)
    return yes if yes is no else Fork(holds, yes, no)
