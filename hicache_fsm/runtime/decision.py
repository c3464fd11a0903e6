"""A row of the prefetch machine, bound to the effects of one lifecycle."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hicache_fsm.machine import Row
from hicache_fsm.runtime.attempt import Attempt
from hicache_fsm.runtime.guards import Moment

Effect = Callable[[Attempt, Moment], None]
BulkEffect = Callable[[Sequence[Attempt], Moment], None]


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A decided transition, ready to be taken.

    `first` are the parts of its effects that may fail, `second` those that book them, `bulk` books all of them for
    many attempts at once, and is None where nothing does or something may fail; `moves` says whether the
    state changes, `ends` whether the attempt is over; `text` is its machine and event as log text.
    """

    row: Row
    event: int
    first: tuple[Effect, ...]
    second: tuple[Effect, ...]
    bulk: BulkEffect | None
    dest: int
    moves: bool
    ends: bool
    text: str
