"""What the judge knows of one attempt: the state the machines put it in, and what it must therefore own."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

HISTORY_LINES: Final = 24

IN_FLIGHT: Final = frozenset({"probing", "retrying", "parked", "transferring"})
ARMED: Final = frozenset({"missed", "pending"})


@dataclass(slots=True)
class Tracked:
    """One attempt of one request id.

    `op` is its live operation (0: none), `spent` the re-issues charged, `swept_at` the pass whose sweep consumed
    the marker, `pin` the pin machine's state and `pin_tokens` what it holds; `again` says that the same request
    was queued before. `lost` is set after a violation that leaves
    the state unknown: the attempt is then only watched for its end.
    """

    rid: str
    attempt: int
    state: str
    enqueued_at: int
    again: bool = False
    op: int = 0
    spent: int = 0
    missed_at: int = -1
    swept_at: int = -1
    marker: bool = False
    immediate: bool = False
    asked: bool = False
    tail: bool = False
    hold: bool = False
    running: bool = False
    lost: bool = False
    pin: str = "unpinned"
    pin_tokens: int = 0
    history: deque[str] = field(default_factory=lambda: deque(maxlen=HISTORY_LINES))

    @property
    def name(self) -> str:
        """The attempt as shown to people: `rid#attempt`."""
        return f"{self.rid}#{self.attempt}"

    def note(self, line: int, pass_: int, event: str, dest: str) -> None:
        """Remember one step for the history that a violation shows."""
        self.history.append(f"line {line}  pass {pass_}  {event}: {self.state} -> {dest}")
