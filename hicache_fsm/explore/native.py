"""The search by compiled code: ctypes around `engine.c`."""

import ctypes
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from hicache_fsm.explore.build import build
from hicache_fsm.explore.engine import Packed, Target, out_of_reach
from hicache_fsm.explore.generate import Source
from hicache_fsm.model.layout import ModelError
from hicache_fsm.model.system import System

U32, U64, I32, I64 = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64
POINTER = ctypes.c_void_p
SIGNATURES: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "new": (POINTER, (POINTER, U64, U32, ctypes.c_char_p)),
    "free": (None, (POINTER,)),
    "bytes": (U64, (POINTER,)),
    "count": (U64, (POINTER,)),
    "generated": (U64, (POINTER,)),
    "edges": (U64, (POINTER,)),
    "taken": (POINTER, (POINTER,)),
    "states": (POINTER, (POINTER,)),
    "moves": (POINTER, (POINTER,)),
    "astray": (I32, (POINTER, POINTER)),
    "state": (None, (POINTER, U64, POINTER)),
    "expand": (ctypes.c_int, (POINTER, U64, U64, I64)),
    "parents": (None, (POINTER, U64, U64, POINTER, U32, POINTER, POINTER)),
    "goals": (ctypes.c_int, (POINTER, POINTER, POINTER, POINTER, U32)),
}
WIDTHS: Final = ((ctypes.c_uint8, 8), (ctypes.c_uint16, 16), (ctypes.c_uint32, 32), (ctypes.c_uint64, 64))
KEPT_FREE: Final = 0.9
"""The part of a disk's free space that a search may take."""
SLOT_BYTES: Final = 6.25
GOAL_BYTES: Final = 8
MAX_STATES: Final = 1 << 31
"""A state's number and some bits of its hash share 32 bits."""


class Native:
    """The compiled engine; with `spill`, states lie in files of that folder.

    Raises OSError if the library cannot be loaded, MemoryError without memory.
    """

    name = "compiled"

    def __init__(
        self,
        system: System,
        source: Source,
        library: Path,
        limit: int,
        keep_edges: bool,
        spill: Path | None = None,
    ) -> None:
        self._system = system
        self._source = source
        self._keep_edges = keep_edges
        self._calls = _calls(library)
        self._words = U64 * system.layout.words
        self._levels = [0, 1]
        self.cut = False
        initial = self._words(*system.layout.pack(system.initial))
        folder = os.fsencode(spill) if spill is not None else None
        self._engine = self._calls["new"](initial, min(limit, MAX_STATES), int(keep_edges), folder)
        if not self._engine:
            where = f" in {spill}" if spill is not None else ""
            raise MemoryError(f"no room to reserve {limit:,} states of {source.stride} bytes{where}")

    def close(self) -> None:
        """Gives the memory back."""
        if self._engine:
            self._calls["free"](self._engine)
            self._engine = None

    @property
    def distinct(self) -> int:
        """States found so far."""
        return int(self._calls["count"](self._engine))

    @property
    def generated(self) -> int:
        """Steps taken so far."""
        return int(self._calls["generated"](self._engine))

    @property
    def bytes(self) -> int:
        """Memory held for the states found."""
        return int(self._calls["bytes"](self._engine))

    @property
    def taken(self) -> Mapping[tuple[str, int], int]:
        """The steps by row of a table: (machine, row number)."""
        rows = self._source.rows
        counts = (U64 * len(rows)).from_address(self._calls["taken"](self._engine))
        taken: Counter[tuple[str, int]] = Counter()
        for row, count in zip(rows, counts, strict=True):
            if count:
                taken[row.machine, row.number] += count
        return taken

    def advance(self) -> int:
        """Expands the last level; returns how many states it led to that are new."""
        first, last = self._levels[-2:]
        outcome = self._calls["expand"](self._engine, first, last, len(self._levels) - 2)
        if outcome < 0:
            raise MemoryError(f"no memory for more than {self.distinct:,} states")
        if outcome == 2:
            value = I32()
            action, name = self._source.updates[self._calls["astray"](self._engine, ctypes.byref(value))]
            raise ModelError(f"{action} takes {name} to {value.value}, out of its range")
        self.cut = outcome == 1
        found = self.distinct - last
        if found:
            self._levels.append(last + found)
        return found

    def violations(self) -> list[Target]:
        """What broke a state or step check so far."""
        found = []
        for what, invariants in (("states", self._source.checks), ("moves", self._source.judged)):
            kept = (self._violation() * len(invariants)).from_address(self._calls[what](self._engine))
            for invariant, each in zip(invariants, kept, strict=True):
                if each.depth >= 0:
                    last = each.action if what == "moves" else None
                    found.append(Target(invariant, each.depth, tuple(each.at), last))
        return found

    def parents(self, depth: int, wanted: Collection[Packed]) -> dict[Packed, tuple[Packed, int]]:
        """For each wanted state the smallest state of level `depth` that steps to it, and the first action."""
        states = [*wanted]
        many = self._words * len(states)
        sought = many(*(self._words(*state) for state in states))
        sources, actions = many(), (I32 * len(states))()
        first, last = self._levels[depth : depth + 2]
        self._calls["parents"](self._engine, first, last, sought, len(states), sources, actions)
        return {
            state: (tuple(source), action)
            for state, source, action in zip(states, sources, actions, strict=True)
        }

    def stuck(self) -> list[Target]:
        """For each goal that is out of reach, a state that ought to reach it."""
        goals = self._system.goals
        if not goals:
            return []
        width = next(kind for kind, bits in WIDTHS if len(goals) < bits)
        allowed = [
            sum(1 << number for number, goal in enumerate(goals) if goal.allowed(action))
            for action in self._system.actions
        ]
        lost = (I64 * len(goals))()
        starts = (U64 * len(self._levels))(*self._levels)
        ran = self._calls["goals"](
            self._engine, (width * len(allowed))(*allowed), lost, starts, len(self._levels) - 1
        )
        if ran < 0:
            raise MemoryError(f"no memory to search {self.distinct:,} states backwards")
        return [
            out_of_reach(goal, self._depth(number), self._state(number))
            for goal, number in zip(goals, lost, strict=True)
            if number >= 0
        ]

    def canonical(self, state: Packed) -> Packed:
        """The state itself: every one is searched."""
        return state

    def edges(self) -> int | None:
        """Distinct pairs of a state and its next; None if they were not counted."""
        return int(self._calls["edges"](self._engine)) if self._keep_edges else None

    def _depth(self, number: int) -> int:
        return next(depth for depth, last in enumerate(self._levels[1:]) if number < last)

    def _state(self, number: int) -> Packed:
        words = self._words()
        self._calls["state"](self._engine, number, words)
        return tuple(words)

    def _violation(self) -> Any:
        fields = [("depth", I64), ("at", self._words), ("action", U32), ("unused", U32)]
        return type("Violation", (ctypes.Structure,), {"_fields_": fields})


def native(system: System, limit: int, keep_edges: bool, spill: Path | None = None) -> Native | None:
    """The compiled engine for a system; None where it cannot be had, for want of a compiler as a rule.

    `spill` is a folder for files that take the place of memory.  Raises OSError if it cannot be written.
    """
    source = Source(system)
    library = build(source.text)
    if library is None:
        return None
    if spill is not None:
        limit = min(limit, _places(spill, source.stride))
    try:
        return Native(system, source, library, limit, keep_edges, spill)
    except OSError:
        return None


def _places(folder: Path, stride: int) -> int:
    """How many states the disk of `folder` has room for: a file that outgrows its disk ends the process."""
    with tempfile.TemporaryFile(dir=folder):
        free = shutil.disk_usage(folder).free
    return int(KEPT_FREE * free / (stride + SLOT_BYTES + GOAL_BYTES))


def _calls(library: Path) -> dict[str, Any]:
    loaded = ctypes.CDLL(str(library))
    calls = {}
    for name, (result, arguments) in SIGNATURES.items():
        calls[name] = loaded[f"engine_{name}"]
        calls[name].restype = result
        calls[name].argtypes = arguments
    return calls
