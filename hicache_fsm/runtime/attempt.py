"""What is kept of one attempt of a request, of its storage operation and of its pin."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from hicache_fsm.machine import Row

if TYPE_CHECKING:
    from hicache_fsm.runtime.decision import Way

HISTORY: Final = 16
"""How many events of an attempt are remembered, at least; about twice as many at most."""

Node = Hashable


class AttemptKey(NamedTuple):
    """A request id, and how often that id has been queued before (#39318: never the id alone)."""

    rid: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.rid}#{self.attempt}"


@dataclass(frozen=True, slots=True)
class Anchor:
    """The device node that a fetched span hangs on; `tokens` is what pinning it locks, up to the root."""

    node: Node
    tokens: int
    on_device: bool = True


@dataclass(slots=True, eq=False)
class Pin:
    """The pin of one holder on one node; `tokens` count against the cap while it is held."""

    key: AttemptKey
    node: Node
    tokens: int
    state: int
    held: bool = False


@dataclass(slots=True, eq=False)
class Operation:
    """One question and the read it may turn into; `number` counts from 1 in order of issue.

    `pages` are the host pages it owns, `tokens` what its hit found stored and `wanted` what it asked for, in
    tokens.
    """

    number: int
    attempt: "Attempt"
    state: int
    pages: int = 0
    tokens: int = 0
    wanted: int = 0


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt: its state, and everything it owns.

    `order` is its place in the queue, `spent` the re-issues charged, `swept` the pass whose sweep consumed
    the marker, `offered` the pass that last returned it to be asked again, `reason` why it missed last, `tag`
    its identity as log text; `history` are the passes and what happened in them.
    """

    key: AttemptKey
    tokens: int
    order: int
    state: int
    tag: str
    spent: int = 0
    op: Operation | None = None
    marker: bool = False
    immediate: bool = False
    partial: bool = False
    reason: str = ""
    swept: int = -1
    offered: int = -1
    hold: bool = False
    hold_pages: int = 0
    anchor: Anchor | None = None
    pin: Pin | None = None
    history: "list[tuple[int, Way]]" = field(default_factory=list)

    @property
    def residue(self) -> bool:
        """Whether it owns anything that a finished attempt must not own."""
        return self.marker or self.hold or self.op is not None or (self.pin is not None and self.pin.held)


@dataclass(frozen=True, slots=True)
class PinPlan:
    """A decided pin whose effects have run: the ledger takes it once nothing else can fail."""

    attempt: Attempt
    anchor: Anchor
    pin: Pin
    row: Row
    anchored: bool
    why: str
