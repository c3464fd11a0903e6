"""The spec as immutable values: what the TOML files say, after loading and before any meaning is attached."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal as OneOf

Constant = bool | int | float | str


@dataclass(frozen=True, slots=True)
class State:
    """A state of a machine; `upstream` maps an SGLang version to the fields that stand for it there."""

    name: str
    about: str
    terminal: bool = False
    upstream: Mapping[str, tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to an instance; `by` names who causes it."""

    name: str
    about: str
    by: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A named condition.

    A `fact` comes with the event from outside, a `context` guard is computed from the instance, a `profile`
    guard from the constants (and the facts) alone.
    """

    name: str
    about: str
    kind: OneOf["fact", "context", "profile"]


@dataclass(frozen=True, slots=True)
class Effect:
    """A named consequence of a transition: one method of an executor."""

    name: str
    about: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A guard, or its negation."""

    guard: str
    positive: bool

    def __str__(self) -> str:
        return self.guard if self.positive else f"!{self.guard}"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row: in `source`, on `event`, if all of `guard` holds, go to `dest` and do `effects` in order.

    `row` numbers the table's rows from 0 in file order, one per source state.
    """

    row: int
    event: str
    source: str
    dest: str
    guard: tuple[Literal, ...] = ()
    effects: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """One state machine: names and rows only."""

    name: str
    about: str
    key: tuple[str, ...]
    initial: str
    states: Mapping[str, State]
    events: Mapping[str, Event]
    guards: Mapping[str, Guard]
    effects: Mapping[str, Effect]
    transitions: tuple[Transition, ...]

    @property
    def terminal(self) -> frozenset[str]:
        """The states that nothing leaves."""
        return frozenset(name for name, state in self.states.items() if state.terminal)

    def rows(self, source: str, event: str) -> Iterator[Transition]:
        """The rows that may decide `event` in `source`, in file order."""
        return (t for t in self.transitions if t.source == source and t.event == event)


@dataclass(frozen=True, slots=True)
class Constants:
    """What a profile fixes.  Passes are scheduling passes, pages are cache pages."""

    interval: int
    max_attempts: int
    dense: bool
    marks_when_disabled: bool
    sweeps_when_disabled: bool
    arms_too_short: bool
    arms_limited: bool
    arms_cut: bool
    spends_unasked: bool
    parks: bool
    parks_pinned: bool
    retries_failed: bool
    immediate_known_hit: bool
    requeries_tail: bool
    requeries_lost_match: bool
    head_rule: bool
    leaky_door: bool
    scope: OneOf["rid", "attempt"]
    resets_budget: bool
    resets_under: OneOf["queue", "pause", "idle"]
    pins_early: bool
    pin_fraction: float
    headroom_slack: int
    believes_failed: bool
    forgets_detached: bool
    pacing: OneOf["pass", "clock"]
    agreed_drains: bool

    @property
    def retries(self) -> bool:
        """Whether misses are paced and asked again at all."""
        return self.interval > 0 and not self.dense

    @property
    def arms(self) -> bool:
        """Whether a miss raises a marker: retries are on, or the profile marks regardless."""
        return not self.dense and (self.interval > 0 or self.marks_when_disabled)

    def renews_budget(self, again: str) -> bool:
        """Whether a request that is queued again for this reason may be asked for as often as a new one.

        Upstream says so of a retraction only, not of a preemption or a pause (#39283).
        """
        return self.resets_budget and (self.scope == "attempt" or again == "retracted")

    @property
    def sweeps(self) -> bool:
        """Whether passes sweep markers: retries are on, or the profile sweeps the markers that it raises regardless."""
        return self.retries or (self.arms and self.sweeps_when_disabled)


@dataclass(frozen=True, slots=True)
class Finding:
    """An invariant that a profile is known to violate: an upstream defect, pinned until upstream mends it.

    `shown_by` says where it shows: in the bounded systems, or only in the logs of a real engine.
    """

    invariant: str
    upstream: tuple[str, ...]
    why: str
    shown_by: OneOf["search", "replay"] = "search"


@dataclass(frozen=True, slots=True)
class Profile:
    """A set of constants: the rules of one SGLang release line, or this project's own."""

    name: str
    about: str
    sglang: tuple[str, ...]
    constants: Constants
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Witness:
    """A change of the spec under which an invariant fails: proof that the check of it can fail."""

    action: OneOf["drop", "swap", "set"]
    target: str
    machine: str = ""
    event: str = ""
    name: str = ""
    source: str = ""
    dest: str = ""
    value: Constant = ""

    def __str__(self) -> str:
        if self.action == "set":
            return f"set {self.target} to {self.value}"
        what = f" {self.name}" if self.name else ""
        instead = f" for {self.value}" if self.action == "swap" else ""
        leaves = f" from {self.source}" if self.source else ""
        enters = f" to {self.dest}" if self.dest else ""
        return f"{self.action} {self.target}{what}{instead} of {self.machine}.{self.event}{leaves}{enters}"


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must always hold, where it is checked, and what makes it fail."""

    id: str
    number: int
    kind: OneOf["state", "step", "eventually"]
    systems: tuple[str, ...]
    machines: tuple[str, ...]
    sentence: str
    why: str
    checked: tuple[str, ...]
    witness: Witness


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything under `spec/`."""

    machines: Mapping[str, Machine]
    invariants: Mapping[str, Invariant]
    profiles: Mapping[str, Profile]
