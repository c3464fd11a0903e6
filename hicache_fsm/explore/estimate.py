"""How many states a search will find and what they take, before it starts."""

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from hicache_fsm.explore.build import compiler
from hicache_fsm.explore.portable import Portable
from hicache_fsm.model.layout import ModelError
from hicache_fsm.model.system import System

PROBE: Final = 100_000
"""States that a probe finds at most: some seconds."""
LATEST: Final = 6
"""Levels whose growth is extrapolated."""
SLOT_BYTES: Final = 6.25
"""The table's 32-bit slots for each state when the table has just grown."""
NUMPY_BYTES: Final = 16
STEP_BYTES: Final = 12
STEPS_PER_STATE: Final = 16
GIB: Final = 1 << 30


class TooLargeError(ModelError):
    """The states would not fit into memory."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """`states` expected, `bound` that the variables' ranges allow, and the bytes that a state takes.

    `probed` states were found by a probe; `exact` if that was all of them.
    """

    states: int
    bound: int
    probed: int
    exact: bool
    bytes_per_state: float

    @property
    def bytes(self) -> int:
        """Memory for the expected states."""
        return int(self.states * self.bytes_per_state)


def estimate(system: System, probe: int = PROBE, keep_edges: bool = True) -> Estimate:
    """Searches up to `probe` states and continues the levels' growth, which falls about evenly.

    Right within a small factor where the probe passed the first few levels; `bound` is certain.
    """
    searcher = Portable(system, probe, keep_edges=False)
    levels = [1]
    while not searcher.cut:
        found = searcher.advance()
        if not found:
            return Estimate(
                searcher.distinct,
                state_bound(system),
                searcher.distinct,
                True,
                bytes_per_state(system, keep_edges),
            )
        levels.append(found)
    bound = state_bound(system)
    expected = min(bound, searcher.distinct + _rest(levels, bound))
    return Estimate(expected, bound, searcher.distinct, False, bytes_per_state(system, keep_edges))


def state_bound(system: System) -> int:
    """How many states the variables' ranges allow."""
    return math.prod(each.size for each in system.layout.variables)


def available_memory() -> int | None:
    """Bytes of memory that are free or can be freed; None if the system does not say."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return None


def exceeds_memory(
    system: System, max_states: int, keep_edges: bool, memory: int | None = None
) -> TooLargeError | None:
    """The error to raise if the states are expected not to fit into `memory` bytes, what is available if None.

    Probes only if as many states as the bounds allow would not fit.
    """
    memory = available_memory() if memory is None else memory
    if memory is None or min(state_bound(system), max_states) * bytes_per_state(system, keep_edges) <= memory:
        return None
    expected = estimate(system, keep_edges=keep_edges)
    needed = min(expected.states, max_states) * expected.bytes_per_state
    if needed <= memory:
        return None
    return TooLargeError(
        f"{system.configuration}: about {expected.states:,} states expected, "
        f"{needed / GIB:.1f} GiB for those searched, {memory / GIB:.1f} GiB are available: "
        "lower the bounds or the most states, or name a folder to keep them in (--spill)"
    )


def bytes_per_state(system: System, keep_edges: bool = True) -> float:
    """What a state is expected to take: itself, its place in the table, and what deciding goals takes."""
    if compiler() is None:
        return NUMPY_BYTES + keep_edges * STEP_BYTES * STEPS_PER_STATE
    bits = math.log2(state_bound(system))
    # A byte a word is lost to rounding; the search for goals holds a bit for each.
    return bits / 8 + system.layout.words + SLOT_BYTES + keep_edges * (len(system.goals) // 8 + 1)


def _rest(levels: list[int], most: int) -> int:
    """How many states the levels to come hold if the logarithm of their growth goes on falling as it did."""
    growth = [math.log(after / before) for before, after in pairwise(levels)][-LATEST:]
    if len(growth) < 2:
        return most
    fall = (growth[0] - growth[-1]) / (len(growth) - 1)
    if fall <= 0:
        return most
    size, rate, total = float(levels[-1]), growth[-1], 0.0
    while size >= 1 and total < most:
        rate -= fall
        size *= math.exp(rate)
        total += size
    return min(most, int(total))
