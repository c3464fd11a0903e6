"""A decision over live guards as a tree, which asks only what it hangs on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Guard = TypeVar("Guard")
Leaf = TypeVar("Leaf")


@dataclass(frozen=True, slots=True, eq=False)
class Fork(Generic[Guard, Leaf]):
    """One guard that the decision hangs on: where to go if it holds, and where if not."""

    holds: Guard
    yes: "Fork[Guard, Leaf] | Leaf"
    no: "Fork[Guard, Leaf] | Leaf"


def grow(
    guards: Sequence[tuple[int, Guard | bool]], leaf: Callable[[int], Leaf], truth: int = 0
) -> Fork[Guard, Leaf] | Leaf:
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
