"""Guards as a log tells them: true, false, or not said.

Written against the spec's sentences and not against the runtime, so that the two can disagree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hicache_fsm.replay.tracked import Tracked
from hicache_fsm.spec import Constants, Literal, Transition

Truth = bool | None

LIMITED = frozenset({"rate_limited", "aux_alloc"})


@dataclass(frozen=True, slots=True)
class Setting:
    """What the whole log shares: the profile's constants and the host-memory mode."""

    constants: Constants
    mode: str


@dataclass(frozen=True, slots=True)
class Moment:
    """One event as the guards see it."""

    setting: Setting
    attempt: Tracked
    pass_: int
    facts: Mapping[str, bool]
    why: str


def _arms_unasked(m: Moment) -> Truth:
    constants = m.setting.constants
    if not constants.arms:
        return False
    if not m.why:
        return constants.arms_limited if constants.arms_limited == constants.arms_too_short else None
    if m.why == "too_short":
        return constants.arms_too_short
    return constants.arms_limited and m.why in LIMITED


def _budget_left(m: Moment) -> Truth:
    return m.attempt.spent < m.setting.constants.max_attempts


def _due(m: Moment) -> Truth:
    return m.pass_ - m.attempt.swept_at >= m.setting.constants.interval


GUARDS: Mapping[str, Callable[[Moment], Truth]] = {
    "arms": lambda m: m.setting.constants.arms,
    "arms_unasked": _arms_unasked,
    "arms_cut": lambda m: m.setting.constants.arms and m.setting.constants.arms_cut,
    "arms_shrunk": lambda m: m.setting.constants.arms and m.setting.constants.requeries_lost_match,
    "paces": lambda m: m.setting.constants.retries,
    "parks": lambda m: m.setting.constants.parks and m.setting.mode == "buffer_only" and not m.attempt.hold,
    "parks_pinned": lambda m: m.setting.constants.parks_pinned,
    "retries_failed": lambda m: m.setting.constants.retries_failed and m.setting.constants.arms,
    "leaky_door": lambda m: m.setting.constants.leaky_door,
    "asks_tail": lambda m: (
        m.attempt.tail
        and m.setting.constants.requeries_tail
        and m.setting.constants.arms
        and bool(_budget_left(m))
    ),
    "budget_left": _budget_left,
    "due": _due,
    "immediate": lambda m: m.attempt.immediate,
}


def truth(literal: Literal, moment: Moment) -> Truth:
    """Whether the literal holds; None when it is a fact that the line does not carry."""
    rule = GUARDS.get(literal.guard)
    value = rule(moment) if rule is not None else moment.facts.get(literal.guard)
    return value if value is None or literal.positive else not value


def failing(row: Transition, moment: Moment) -> Literal | None:
    """The first literal of the row that is known to be false, or None if the row may have been taken."""
    return next((literal for literal in row.guard if truth(literal, moment) is False), None)
