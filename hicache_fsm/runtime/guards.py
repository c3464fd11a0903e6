"""The meaning of the prefetch machine's guards: what a profile, an attempt and an event say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hicache_fsm.rules import retry_due
from hicache_fsm.runtime.attempt import Anchor, Attempt, Operation, PinPlan
from hicache_fsm.runtime.settings import Settings
from hicache_fsm.runtime.words import LIMITED, TOO_SHORT


class Moment:
    """One event as guards and effects see it, made by `moment_of`.

    `now` is the pass; `asks`, `room` and `head` are the facts, `facts` the same as log text; `tokens` and
    `wanted` are tokens, `pages` host pages. `answered` is the operation whose answer this is, where it is not
    the attempt's own. Every event makes one of these, which takes half the time without an `__init__`.
    """

    __slots__ = (
        *("now", "why", "facts", "asks", "room", "head", "tokens", "wanted", "pages"),
        *("anchor", "answered", "pin"),
    )

    now: int
    why: str
    facts: str
    asks: bool
    room: bool
    head: bool
    tokens: int
    wanted: int
    pages: int
    anchor: Anchor | None
    answered: Operation | None
    pin: PinPlan | None


def moment_of(now: int, why: str = "") -> Moment:
    """An event in pass `now`, for the reason `why`, of which nothing else is known."""
    moment = Moment()
    moment.now = now
    moment.why = why
    moment.facts = ""
    moment.asks = moment.room = moment.head = False
    moment.tokens = moment.wanted = moment.pages = 0
    moment.anchor = moment.answered = moment.pin = None
    return moment


Guard = Callable[[Attempt, Moment], bool]
Which = Callable[[Sequence[Attempt], Moment], list[Attempt]]
"""A guard asked of many attempts: those for which it holds, in order."""


@dataclass(frozen=True, slots=True)
class Swept:
    """A guard that sweeps ask of many attempts, in a form that costs a third of asking each."""

    holds: Guard
    which: Which

    def __call__(self, attempt: Attempt, moment: Moment) -> bool:
        return self.holds(attempt, moment)


def which(guard: Guard) -> Which:
    """The guard, to be asked of many attempts."""
    if isinstance(guard, Swept):
        return guard.which
    return lambda attempts, moment: [one for one in attempts if guard(one, moment)]


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
        "arms_cut": arms and constants.arms_cut,
        "arms_shrunk": arms and constants.requeries_lost_match,
        "paces": constants.retries,
        "parks": parks and (lambda attempt, moment: not attempt.hold_pages),
        "parks_pinned": constants.parks_pinned,
        "retries_failed": constants.retries_failed and arms,
        "asks_tail": tail and (lambda attempt, moment: attempt.partial and attempt.spent < budget),
        "budget_left": Swept(
            lambda attempt, moment: attempt.spent < budget,
            lambda attempts, moment: [one for one in attempts if one.spent < budget],
        ),
        "due": lambda attempt, moment: retry_due(moment.now - attempt.swept, interval),
        "immediate": constants.immediate_known_hit
        and Swept(
            lambda attempt, moment: attempt.immediate,
            lambda attempts, moment: [one for one in attempts if one.immediate],
        ),
        "leaky_door": constants.leaky_door,
    }
