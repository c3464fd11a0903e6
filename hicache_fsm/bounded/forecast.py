"""How many states to expect of asked-for bounds, and how far to trust that."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from hicache_fsm.explore import estimate, explore
from hicache_fsm.explore.build import compiler
from hicache_fsm.explore.estimate import GIB, bytes_per_state, state_bound
from hicache_fsm.model import Configuration, system
from hicache_fsm.spec import Spec

How = Literal["exact", "probe", "growth"]

TRUST: Final = {
    "exact": "exact: a probe found them all",
    "probe": "from a probe, right within a factor of four where that was measured",
    "growth": "from the growth with fewer requests, right within a factor of four where that was measured",
}

PROBED: Final = 3
"""The most requests of which a probe sees enough levels."""

PATIENCE: Final = 3_000_000
"""States that are searched to know the growth: some seconds."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`states` expected, how that is known, and the bytes that they take."""

    states: int
    how: How
    bytes: int

    def __str__(self) -> str:
        about = "" if self.how == "exact" else "about "
        return f"{about}{self.states:,} states, {self.bytes / GIB:.2f} GiB ({TRUST[self.how]})"


def forecast(spec: Spec, profile: str, configuration: Configuration) -> Forecast:
    """What to expect of a search, in some seconds at most.  Raises ModelError for bad bounds."""
    built = system(spec, profile, configuration)
    requests = configuration.bounds.get("requests", 0)
    if requests <= PROBED:
        found = estimate(built)
        return Forecast(found.states, "exact" if found.exact else "probe", found.bytes)
    two, three = (_states(spec, profile, configuration, count) for count in (PROBED - 1, PROBED))
    states = min(state_bound(built), int(three * (three / two) ** (requests - PROBED)))
    return Forecast(states, "growth", int(states * bytes_per_state(built)))


def _states(spec: Spec, profile: str, configuration: Configuration, requests: int) -> int:
    anchors = configuration.bounds["anchors"][:requests]
    bounds = {**configuration.bounds, "requests": requests, "anchors": anchors}
    fewer = system(spec, profile, replace(configuration, bounds=bounds))
    expected = estimate(fewer)
    if expected.exact or expected.states > PATIENCE or compiler() is None:
        return expected.states
    found = explore(fewer, max_states=PATIENCE, keep_edges=False)
    return found.distinct if found.complete else max(found.distinct, expected.states)
