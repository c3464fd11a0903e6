"""What I/O threads post to the scheduler's thread."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer of storage operation `op`: a hit, a miss, or the end of a read.

    `tokens` are stored (hit) or loaded (done; 0 means all that were asked for), `wanted` is what a question
    asked for, also in tokens; `why` is the reason of a miss or a failure.
    """

    op: int
    event: Literal["hit", "miss", "done", "fail"]
    tokens: int = 0
    wanted: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class WriteCompletion:
    """The acknowledgement of a write of `pages` to storage."""

    pool: str
    pages: Sequence[Hashable]
    ok: bool
