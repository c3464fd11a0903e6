"""What was counted since the last pass: one addition per event, turned into series once per pass."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from hicache_fsm.metrics.meters import Meters
from hicache_fsm.spec import Spec, Transition

OPERATION_STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "asking": ("probing", "retrying"),
    "known": ("parked",),
    "reading": ("transferring",),
}
"""In which states of its attempt an operation is in which of its own; orphans have no attempt."""

IN_FLIGHT: Final = ("probing", "retrying", "transferring")


ASKS, MISSES, HITS, ENDS, ORPHANS, MAY_ORPHAN = (1 << bit for bit in range(6))
"""What a row does that a count of it does not tell."""


class Tally:
    """Counts for both sources.  An attempt is a number of the caller's, unique among those it tells of."""

    def __init__(self, spec: Spec, meters: Meters) -> None:
        prefetch = spec.machines["prefetch"]
        self.meters = meters
        self.states = Counter(dict.fromkeys(prefetch.states, 0))
        self.running = 0
        self.orphans = 0
        self.events: dict[tuple[str, str], int] = {}
        self.counts: dict[tuple[str, ...], int] = {}
        self._waiting = [state for state in prefetch.states if state not in prefetch.terminal]
        self._initial = prefetch.initial
        self._transitions = {row.row: row for row in prefetch.transitions}
        self._does = {row.row: _does(row, prefetch.terminal) for row in prefetch.transitions}
        self._begun = 0
        self._rows: dict[int, int] = {}
        self._observed: dict[tuple[str, int], int] = {}
        self._questions: dict[int, int] = {}
        self._missed: dict[int, int] = {}
        self._told: dict[tuple[str, str], int] = {}
        self._gauges: dict[tuple[str, ...], float] = {}
        for invariant in spec.invariants:
            meters.child("invariant_violations_total", invariant)
        for name in ("retries_issued_total", "retries_served_total", "retries_exhausted_total"):
            meters.child(name)

    def __bool__(self) -> bool:
        """Whether anything was counted since the last `flush`."""
        return bool(self._rows or self._begun or self.events or self.counts)

    def event(self, machine: str, event: str, count: int = 1) -> None:
        """A machine took an event that is no row of the prefetch machine."""
        key = machine, event
        self.events[key] = self.events.get(key, 0) + count

    def count(self, amount: int, *series: str) -> None:
        """A counter, named with its labels' values, goes up."""
        self.counts[series] = self.counts.get(series, 0) + amount

    def queued(self) -> None:
        """An attempt joined the queue."""
        self._begun += 1

    def took(self, number: int, now: int, attempt: int, mistaken: bool = False) -> None:
        """The attempt took a row in pass `now`; `mistaken` if by an answer to another question (#39318)."""
        rows = self._rows
        rows[number] = rows.get(number, 0) + 1
        does = self._does[number]
        if not does:
            return
        if does & ASKS:
            self._questions[attempt] = self._questions.get(attempt, 0) + 1
        if does & MISSES:
            self._missed.setdefault(attempt, now)
        elif does & HITS and attempt in self._missed:
            self._observe("miss_to_hit_passes", now - self._missed.pop(attempt))
        if does & ORPHANS or (mistaken and does & MAY_ORPHAN):
            self.orphans += 1
        if does & ENDS:
            self._missed.pop(attempt, None)
            self._observe("questions_per_request", self._questions.pop(attempt, 0))

    def vanished(self, attempt: int, state: str) -> None:
        """An attempt is gone from this state without an event."""
        self.states[state] -= 1
        self._missed.pop(attempt, None)
        self._questions.pop(attempt, None)

    def left(self, event: str) -> None:
        """A running request left its batch."""
        self.running -= 1
        self.event("prefetch", event)

    def ended(self, event: str) -> None:
        """An orphan answered for the last time."""
        self.orphans -= 1
        self.event("operation", event)

    def flush(self) -> None:
        """Bring counters and the gauges of states up to date."""
        if self._begun:
            self.states[self._initial] += self._begun
            self.event("prefetch", "enqueue", self._begun)
            self._begun = 0
        for number, count in self._rows.items():
            self._settle(self._transitions[number], count)
        self._rows.clear()
        for (machine, event), count in self.events.items():
            self.meters.add("transitions_total", count, machine, event)
        self.events.clear()
        for (name, *values), count in self.counts.items():
            self.meters.add(name, count, *values)
        self.counts.clear()
        for (name, value), count in self._observed.items():
            self.meters.observe(name, value, count)
        self._observed.clear()
        states = self.states
        for state in self._waiting:
            self.gauge(states[state], "states", "prefetch", state)
        for state, sources in OPERATION_STATES.items():
            self.gauge(sum(states[each] for each in sources), "states", "operation", state)
        self.gauge(self.orphans, "states", "operation", "orphan")

    def catch_up(self, name: str, counts: Mapping[str, int]) -> None:
        """Bring a counter up to counts that somebody else keeps."""
        for value, count in counts.items():
            told = self._told.get((name, value), 0)
            if count > told:
                self.meters.add(name, count - told, value)
                self._told[name, value] = count

    def gauge(self, value: float, *series: str) -> None:
        """Set a gauge, named with its labels' values, if it has changed."""
        if self._gauges.get(series) != value:
            self._gauges[series] = value
            self.meters.set(series[0], value, *series[1:])

    def _observe(self, name: str, value: int) -> None:
        key = name, value
        self._observed[key] = self._observed.get(key, 0) + 1

    def _settle(self, row: Transition, count: int) -> None:
        """Book what so many takes of a row did."""
        self.event("prefetch", row.event, count)
        if row.source != row.dest:
            self.states[row.source] -= count
            self.states[row.dest] += count
        if row.dest == "scheduled":
            self.running += count
        if "spend" in row.effects:
            self.count(count, "retries_issued_total")
        if row.event == "hit" and row.source == "retrying" and row.dest in ("transferring", "parked"):
            self.count(count, "retries_served_total")
        if row.dest == "exhausted" and row.event in ("sweep", "lose_match"):
            self.count(count, "retries_exhausted_total")


def _does(row: Transition, terminal: frozenset[str]) -> int:
    effects = set(row.effects)
    does = 0
    if "ask" in effects:
        does |= ASKS
    if effects & {"raise_marker", "raise_immediate"}:
        does |= MISSES
    if row.event == "hit" and row.dest in ("transferring", "parked"):
        does |= HITS
    lets_go = effects & {"orphan_operation", "cut_operation"} or row.dest in terminal
    if lets_go and row.source in IN_FLIGHT:
        does |= ORPHANS
    if "end_operation" in effects:
        does |= MAY_ORPHAN
    if row.dest in terminal:
        does |= ENDS
    return does
