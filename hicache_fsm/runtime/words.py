"""The words that events carry as their reason (`why`), as the event log spells them."""

from typing import Final

from hicache_fsm.runtime.errors import WrongAnswer

TOO_SHORT: Final = "too_short"
RATE_LIMITED: Final = "rate_limited"
AUX_ALLOC: Final = "aux_alloc"
STORAGE_OFF: Final = "storage_off"
BELOW_THRESHOLD: Final = "below_threshold"
TERMINATED: Final = "terminated"
ANCHOR_LOST: Final = "anchor_lost"
HOST_CAPACITY: Final = "host_capacity"
PIN_CAP: Final = "pin_cap"
PARTIAL_HIT: Final = "partial_hit"
RETRACTED: Final = "retracted"

REASONS: Final[dict[str, frozenset[str]]] = {
    "issue": frozenset({TOO_SHORT, RATE_LIMITED, AUX_ALLOC, STORAGE_OFF, "in_flight", "expired"}),
    "miss": frozenset({BELOW_THRESHOLD, "absent", TERMINATED}),
    "hit": frozenset({RATE_LIMITED, PIN_CAP, HOST_CAPACITY, "turn"}),
    "revoke": frozenset({"device_covered", "oversize", "unservable"}),
    "fail": frozenset({"discarded", "read_error", "nothing_usable"}),
    "abort": frozenset({"client", "queue_limit", "priority", "timeout", "bootstrap", "session"}),
    "enqueue": frozenset({RETRACTED, "preempted", "paused", "requeued"}),
}
"""The reasons that each event knows; `enqueue` has them in its field `again`."""

LIMITED: Final = frozenset({RATE_LIMITED, AUX_ALLOC})
"""Declines of a question by a limit, not by the span's length (#36227)."""


def check_reason(event: str, why: str) -> str:
    """`why` itself.  Raises ValueError if `event` does not know the reason."""
    if why not in REASONS[event]:
        raise WrongAnswer(f'"{why}" is no reason for {event}: use one of {", ".join(sorted(REASONS[event]))}')
    return why
