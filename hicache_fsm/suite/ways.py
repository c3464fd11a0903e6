"""The ways on of a request, event by event, by the design's sentences for the profile `recommended`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from hicache_fsm.suite.protocol import Event, RequestView, World

ASKING: Final = ("probing", "retrying")
UNREAD: Final = (*ASKING, "parked")
IN_FLIGHT: Final = (*UNREAD, "transferring")
WAITING: Final = ("queued", "missed", "pending", "exhausted", "loaded")
QUEUED: Final = (*WAITING, *IN_FLIGHT)


Pin = Literal["any", "gone", "kept"]


@dataclass(frozen=True, slots=True)
class Next:
    """One way on: the state, and what it costs.

    `asked` are questions that go out on the way, `spent` how many of them the budget pays, `attempt` is 1 where a new
    attempt begins.  `immediate` says that the marker stands for a known hit, which is not paced; None is not told.
    `hold` are the pages of the hold after, None for as many as before; `pin` says what
    becomes of the pin: anything, none is left, or it stays.
    """

    state: str
    asked: int = 0
    spent: int = 0
    attempt: int = 0
    immediate: bool | None = False
    hold: int | None = None
    pin: Pin = "any"

    def __str__(self) -> str:
        asks = f" with {self.asked} more questions" if self.asked else ""
        hold = "" if self.hold is None else f", hold {self.hold}"
        return f"{self.state}{asks}{hold}{'' if self.pin == 'any' else f', pin {self.pin}'}"


@dataclass(slots=True)
class One:
    """What is remembered of a request: its view, its place in the queue, and its pacing.

    `question` numbers its live operation among the questions of its id, 0 for none; `swept` is the pass that consumed
    its marker, None where nobody saw it.
    """

    view: RequestView = field(default_factory=RequestView)
    order: int = 0
    question: int = 0
    immediate: bool | None = False
    swept: int | None = None
    asked: int = 0


@dataclass(slots=True)
class Terms:
    """What every rule depends on: the world, and whether storage is attached."""

    world: World
    attached: bool = True

    @property
    def arms(self) -> bool:
        """Whether a miss raises a marker: retries are on."""
        return self.world.interval > 0

    @property
    def parks(self) -> bool:
        """Whether a hit without room waits for some."""
        return self.world.mode == "buffer_only"


Rule = Callable[[Terms, One, Event], list[Next]]


def same(one: One) -> Next:
    return Next(one.view.state, immediate=one.immediate)


def arrives(terms: Terms, attempt: int) -> list[Next]:
    """A new attempt asks at once, or declines; it owes nothing and has spent nothing."""
    asks = [Next("probing", asked=1, attempt=attempt, hold=0)] if terms.attached else []
    return [*asks, Next("queued", attempt=attempt, hold=0)]


def _misses(terms: Terms, hold: int | None = None, immediate: bool | None = False) -> list[Next]:
    state = "missed" if terms.arms else "queued"
    return [Next(state, immediate=immediate, hold=hold, pin="gone")]


def lost(terms: Terms, one: One) -> list[Next]:
    """The base on the device is gone: a known hit or a hold goes, and is asked for again at once."""
    if one.view.state in UNREAD:
        return _misses(terms, immediate=True)
    if one.view.state == "loaded":
        return _misses(terms, hold=0, immediate=True)
    return [Next(one.view.state, immediate=one.immediate, hold=0)] if one.view.state in WAITING else []


def _enq(terms: Terms, one: One, event: Event) -> list[Next]:
    if one.view.state in (*QUEUED, "running", "scheduled"):
        return []
    ways = arrives(terms, 1)
    return ways[-1:] if "why" in event.facts else ways


def _retract(terms: Terms, one: One, event: Event) -> list[Next]:
    return arrives(terms, 1) if one.view.state in ("running", "scheduled") else []


def _issue(terms: Terms, one: One, event: Event) -> list[Next]:
    fresh = [Next("probing", asked=1)] if one.view.state == "queued" and terms.attached else []
    return [same(one), *fresh]


def _finish(terms: Terms, one: One, event: Event) -> list[Next]:
    return [Next("finished", hold=0)] if one.view.state in ("running", "scheduled") else []


def _leave(terms: Terms, one: One, event: Event) -> list[Next]:
    return [Next("aborted", hold=0, pin="gone")] if one.view.state in QUEUED else []


def _hit(terms: Terms, one: One, event: Event) -> list[Next]:
    """Pages are taken; or there is no room; or the base moved, so that the hit is of no use."""
    if one.view.state not in ASKING:
        return []
    useless = [Next("queued", pin="gone"), *_misses(terms, immediate=None)]
    if event.facts.get("room") == "no":
        return [*useless, *([Next("parked", pin="gone")] if terms.parks and not one.view.hold else [])]
    return [
        Next("transferring"),
        *([Next("parked", pin="gone")] if terms.parks and not one.view.hold else []),
        *useless,
    ]


def _miss(terms: Terms, one: One, event: Event) -> list[Next]:
    return _misses(terms) if one.view.state in ASKING else []


def _alloc(terms: Terms, one: One, event: Event) -> list[Next]:
    return [Next("transferring"), *lost(terms, one)] if one.view.state == "parked" else []


def _xfer(terms: Terms, one: One, event: Event) -> list[Next]:
    return [same(one)] if one.view.state == "transferring" else []


def _done(terms: Terms, one: One, event: Event) -> list[Next]:
    """A hold; and where the hit was partial and budget is left, the tail is asked for again."""
    if one.view.state != "transferring":
        return []
    read = one.view.pages if event.amount is None else event.amount
    if read == 0:
        return _misses(terms)
    hold = one.view.hold + read
    left = terms.arms and one.view.spent < terms.world.max_attempts
    return [Next("loaded", hold=hold), *([Next("missed", hold=hold)] if left else [])]


def _fail(terms: Terms, one: One, event: Event) -> list[Next]:
    return _misses(terms) if one.view.state == "transferring" else []


def _answer(terms: Terms, one: One, event: Event) -> list[Next]:
    return [way for rule in (_hit, _miss, _done, _fail) for way in rule(terms, one, event)]


def _revoke(terms: Terms, one: One, event: Event) -> list[Next]:
    if one.view.state == "loaded":
        return [Next("queued", hold=0, pin="gone")]
    return [Next("queued", pin="gone")] if one.view.state in UNREAD else []


def _cut(terms: Terms, one: One, event: Event) -> list[Next]:
    if one.view.state == "transferring":
        return [Next("loaded", hold=one.view.hold + (event.amount or 0))]
    return _misses(terms) if one.view.state in UNREAD else []


def _expire(terms: Terms, one: One, event: Event) -> list[Next]:
    """A deadline is no miss: nothing is asked again."""
    if one.view.state == "transferring":
        return [Next("loaded", hold=one.view.hold + (event.amount or 0))]
    return [Next("exhausted", pin="gone")] if one.view.state in UNREAD else []


def _admit(terms: Terms, one: One, event: Event) -> list[Next]:
    """It joins a batch and takes its hold along; or it is kept back since its base is gone, and asks again."""
    state, left = one.view.state, one.view.spent < terms.world.max_attempts
    asks = [Next("retrying", asked=1, spent=1)] if terms.attached and left else []
    again = [*asks, Next("queued")] if left else [Next("exhausted")]
    ways = [Next("running", hold=0, pin="gone"), *again]
    if state in WAITING:
        return [*ways, same(one), *lost(terms, one)]
    if state in IN_FLIGHT and terms.world.policy == "best_effort":
        return [*ways, same(one), *_cut(terms, one, event)]
    return [same(one)] if state in IN_FLIGHT else []


RULES: Final[Mapping[str, Rule]] = {
    "enq": _enq,
    "issue": _issue,
    "retract": _retract,
    "finish": _finish,
    "abort": _leave,
    "abandon": _leave,
    "hit": _hit,
    "miss": _miss,
    "alloc": _alloc,
    "xfer": _xfer,
    "done": _done,
    "fail": _fail,
    "discard": _fail,
    "answer": _answer,
    "revoke": _revoke,
    "cut": _cut,
    "expire": _expire,
    "admit": _admit,
}
"""The ways on of a request, by the word that concerns it; an empty list where the event may not happen to it."""
