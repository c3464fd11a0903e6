"""Follows the attempts of a real engine through the prefetch machine, from the events that it is seen to take."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from hicache_fsm.machine import CompiledMachine, Row
from hicache_fsm.runtime.words import LIMITED, PARTIAL_HIT, TOO_SHORT
from hicache_fsm.spec import Constants, Spec

NEWEST: Final = "sglang-0.5.23"
"""The profile of an engine whose own is unknown."""


class Case(NamedTuple):
    """All that an event's outcome hangs on: the attempt's state, what the event says, what the attempt has."""

    state: int
    event: str
    facts: tuple[tuple[str, bool], ...]
    why: str
    op: bool
    tokens: bool
    budget_left: bool
    immediate: bool
    hold: bool


Outcome = tuple[Row | None, int, bool, bool]
"""The row, the re-issues that it spends, and whether the attempt is immediate and has a hold after it."""


@dataclass(slots=True)
class Followed:
    """One attempt: its number in order of arrival, its state, and what guards ask about."""

    number: int
    state: int
    spent: int = 0
    immediate: bool = False
    hold: bool = False


class Follower:
    """The attempts of one engine, one per request id; what an event does not say, the profile does."""

    def __init__(self, spec: Spec, header: Mapping[str, object]) -> None:
        """`header` has the members of an event log's header; an unknown profile is taken for the newest's."""
        self.table = CompiledMachine(spec.machines["prefetch"])
        self.attempts: dict[str, Followed] = {}
        self._constants = _constants(spec, header)
        self._parks = self._constants.parks and header.get("mode") == "buffer_only"
        self._begun = 0
        self._budget = self._constants.max_attempts
        self._outcomes: dict[tuple[object, ...], Outcome] = {}

    def begin(self, rid: str, again: str) -> None:
        """An attempt is queued; `again` says why, if the request was queued before.

        The budget starts anew only where the profile says so: upstream for a retraction, not for a preemption or
        a pause (docs/upstream-findings.md).
        """
        before = self.attempts.get(rid)
        kept = before is not None and again and not self._constants.renews_budget(again)
        spent = before.spent if before is not None and kept else 0
        self._begun += 1
        self.attempts[rid] = Followed(self._begun, self.table.initial, spent)

    def state(self, rid: str) -> str | None:
        """The state of the request's newest attempt, None if it is not known."""
        one = self.attempts.get(rid)
        return None if one is None else self.table.states[one.state]

    def take(self, one: Followed, event: str, members: Mapping[str, Any]) -> Row | None:
        """The row that the event takes; the attempt is moved.  None if the machine does not allow the event."""
        facts = members.get("facts")
        case = (
            one.state,
            event,
            tuple(facts.items()) if facts else (),
            members.get("why", ""),
            "op" in members,
            bool(members.get("tokens")),
            one.spent < self._budget,
            one.immediate,
            one.hold,
        )
        outcome = self._outcomes.get(case)
        if outcome is None:
            outcome = self._outcomes[case] = self._decide(Case(*case))
        row, spends, one.immediate, one.hold = outcome
        if row is not None:
            one.state = row.dest
            one.spent += spends
        return row

    def _decide(self, case: Case) -> Outcome:
        table = self.table
        number = table.event_ids.get(case.event)
        row = None if number is None else table.decide(case.state, number, self._truth(case))
        if row is None:
            return None, 0, case.immediate, case.hold
        effects = row.transition.effects
        spends = "spend" in effects or ("spend_unasked" in effects and self._constants.spends_unasked)
        immediate, hold = case.immediate, case.hold
        if "raise_immediate" in effects:
            immediate = self._constants.immediate_known_hit
        elif "raise_marker" in effects or "ask" in effects:
            immediate = False
        if "stage_hold" in effects or ("cut_operation" in effects and case.tokens):
            hold = True
        elif "release_hold" in effects or "consume_hold" in effects:
            hold = False
        return row, int(spends), immediate, hold

    def _truth(self, case: Case) -> int:
        constants, facts = self._constants, dict(case.facts)
        unasked = (case.why == TOO_SHORT and constants.arms_too_short) or (
            case.why in LIMITED and constants.arms_limited
        )
        holds = {
            "asks": facts.get("asks", case.event == "lose_match" and case.op),
            "room": facts.get("room", case.event == "unpark"),
            "head_exempt": facts.get("head_exempt", False),
            "arms": constants.arms,
            "arms_unasked": constants.arms and unasked,
            "arms_cut": constants.arms and constants.arms_cut,
            "arms_shrunk": constants.arms and constants.requeries_lost_match,
            "paces": constants.retries,
            "parks": self._parks and not case.hold,
            "parks_pinned": constants.parks_pinned,
            "retries_failed": constants.retries_failed and constants.arms,
            "asks_tail": case.why == PARTIAL_HIT,
            "budget_left": case.budget_left,
            "due": True,
            "immediate": case.immediate,
            "leaky_door": constants.leaky_door,
        }
        return self.table.mask(name for name, true in holds.items() if true)


def _constants(spec: Spec, header: Mapping[str, object]) -> Constants:
    constants = spec.profiles.get(str(header.get("profile")), spec.profiles[NEWEST]).constants
    told = header.get("constants")
    if not isinstance(told, Mapping):
        return constants
    known = {field.name for field in fields(constants)}
    return replace(constants, **{name: value for name, value in told.items() if name in known})
