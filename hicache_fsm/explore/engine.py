"""What carries out a search: a level at a time, then backwards for paths and goals."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from hicache_fsm.model.system import Goal

Packed = tuple[int, ...]
"""The words of a state, as its layout packs them."""


@dataclass(frozen=True, slots=True)
class Target:
    """A violation: a state at its depth and, if it takes one more step to see it, that action's number."""

    invariant: str
    depth: int
    state: Packed
    last: int | None = None
    about: str = ""

    @property
    def length(self) -> int:
        """The steps of the counterexample."""
        return self.depth + (self.last is not None)

    @property
    def order(self) -> tuple[int, bool, Packed, int]:
        """Sorts violations of one invariant: the first of them is the one to show, whoever searches."""
        last = self.last
        return (self.length, last is None, self.state, -1 if last is None else last)


def out_of_reach(goal: Goal, depth: int, state: Packed) -> Target:
    """A state from which a goal cannot be reached any more."""
    about = f"{goal.invariant}: from here no allowed step leads to where {goal.about}"
    return Target(goal.invariant, depth, state, about=about)


class Engine(Protocol):
    """A search in progress.  All engines find the same: states, counts, levels, violations and parents."""

    name: str
    cut: bool
    """Whether the limit stopped the search."""

    @property
    def distinct(self) -> int:
        """States found so far."""

    @property
    def generated(self) -> int:
        """Steps taken so far."""

    @property
    def taken(self) -> Mapping[tuple[str, int], int]:
        """The steps by row of a table: (machine, row number)."""

    @property
    def bytes(self) -> int:
        """Memory held for the states found."""

    def advance(self) -> int:
        """Expands the last level; returns how many states it led to that are new.

        Raises ModelError if a variable leaves its range, MemoryError if there is no memory.
        """

    def violations(self) -> list[Target]:
        """What broke a state or step check so far: for each check the first by `Target.order`."""

    def parents(self, depth: int, wanted: Collection[Packed]) -> dict[Packed, tuple[Packed, int]]:
        """For each wanted state the smallest state of level `depth` that steps to it, and the first action."""

    def stuck(self) -> list[Target]:
        """For each goal that a complete search finds out of reach, a state that ought to reach it."""

    def edges(self) -> int | None:
        """Distinct pairs of a state and its next, of a complete search; None if they were not counted."""

    def canonical(self, state: Packed) -> Packed:
        """The state that stands for this one: itself, unless interchangeable instances are told no more apart."""

    def close(self) -> None:
        """Gives the memory back."""
