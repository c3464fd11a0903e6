"""What can be owned in an engine, and findings about the engine as a whole."""

from __future__ import annotations

from enum import StrEnum

from .sink import Finding


class Kind(StrEnum):
    """What can be owned. The first eight are filed under a request, the others belong to the engine."""

    MARKER = "marker"
    """An armed re-issue."""
    ENTRY = "entry"
    """A prefetch in flight, in tokens asked."""
    PIN = "pin"
    """A lock on the device anchor, in tokens."""
    CONTEXT = "context"
    """The prefix that a fetched span is spliced to."""
    WAIT = "wait"
    """A wait budget of the timeout policy."""
    HOLD = "hold"
    """A staged hold, in tokens."""
    CREDIT = "credit"
    """Tokens loaded from storage that admission has not collected."""
    FILL = "fill"
    """A copy from a hold to the device in flight, in tokens."""
    OCCUPANCY = "occupancy"
    """Host tokens counted against prefetches."""
    PINNED = "pinned"
    """Tokens that all pins together are counted with."""
    HOST_PAGES = "host_pages"
    """Host memory, in tokens."""
    DEVICE = "device"
    """Device memory or locks on it, in tokens."""
    BELIEF = "belief"
    """Pages believed stored, against the evidence."""
    DECISION = "decision"
    """Not owned: what one rank decided and another did not."""


IN_TOKENS = frozenset({Kind.ENTRY, Kind.PIN, Kind.HOLD, Kind.CREDIT, Kind.FILL})


def invariant_of(kind: Kind) -> str:
    """The invariant that a leftover of a kind breaks."""
    return {Kind.MARKER: "marker-owned", Kind.PIN: "pin-owned"}.get(kind, "no-residue")


def total(invariant: str, kind: Kind, amount: int, now: int, message: str) -> Finding:
    """A finding about the engine as a whole."""
    return Finding(
        invariant=invariant,
        kind=kind,
        pass_=now,
        rid=None,
        attempt=None,
        amount=amount,
        since_pass=now,
        left_pass=None,
        exit=None,
        message=message,
    )
