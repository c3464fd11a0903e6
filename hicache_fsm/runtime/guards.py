"""The meaning of the prefetch machine's guards: what a profile, an attempt and an event say."""

from collections.abc import Callable, Mapping

from hicache_fsm.rules import retry_due
from hicache_fsm.runtime.attempt import Anchor, Attempt, Operation, PinPlan
from hicache_fsm.runtime.settings import Settings
from hicache_fsm.runtime.words import LIMITED, TOO_SHORT


class Moment:
    """One event as guards and effects see it.

    `now` is the pass; `asks`, `room` and `head` are the facts, `facts` the same as log text; `tokens` and
    `wanted` are tokens, `pages` host pages. `answered` is the operation whose answer this is, where it is not
    the attempt's own. The defaults sit on the class, since most events set one or two and every event makes
    one of these.
    """

    facts: str = ""
    why: str = ""
    asks: bool = False
    room: bool = False
    head: bool = False
    tokens: int = 0
    wanted: int = 0
    pages: int = 0
    anchor: Anchor | None = None
    answered: Operation | None = None
    pin: PinPlan | None = None

    def __init__(self, now: int, why: str = "") -> None:
        self.now = now
        if why:
            self.why = why


Guard = Callable[[Attempt, Moment], bool]


def prefetch_guards(settings: Settings) -> Mapping[str, Guard | bool]:
    """The guards of the prefetch machine under these settings; a bool where the settings decide alone."""
    constants = settings.constants
    interval, budget = constants.interval, constants.max_attempts
    arms = constants.arms
    parks = constants.parks and settings.mode == "buffer_only"
    tail = constants.requeries_tail and arms
    unasked = frozenset({TOO_SHORT} if arms and constants.arms_too_short else ()) | (
        LIMITED if arms and constants.arms_limited else frozenset()
    )
    return {
        "asks": lambda attempt, moment: moment.asks,
        "room": lambda attempt, moment: moment.room,
        "head_exempt": lambda attempt, moment: moment.head,
        "arms": arms,
        "arms_unasked": bool(unasked) and (lambda attempt, moment: moment.why in unasked),
        "parks": parks and (lambda attempt, moment: not attempt.hold_pages),
        "parks_pinned": constants.parks_pinned,
        "retries_failed": constants.retries_failed and arms,
        "asks_tail": tail and (lambda attempt, moment: attempt.partial and attempt.spent < budget),
        "budget_left": lambda attempt, moment: attempt.spent < budget,
        "due": lambda attempt, moment: retry_due(moment.now - attempt.swept, interval),
        "immediate": constants.immediate_known_hit and (lambda attempt, moment: attempt.immediate),
        "leaky_door": constants.leaky_door,
    }
