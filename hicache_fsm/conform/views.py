"""What of a state all sides can tell: the model's variables without those that only its checks read."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from hicache_fsm.conform.graph import State
from hicache_fsm.model import System

Values = Mapping[str, Hashable]

IN_FLIGHT = frozenset({"probing", "retrying", "parked"})
"""The states in which a pin that is not held still matters: the hit asks for it again."""

HISTORY = frozenset({"issued", "since", "io"})
"""Variables of the admission system that record the past for a check."""


@dataclass(frozen=True, slots=True)
class View:
    """Names, and the function that reads their values off the values of a model's state, in words."""

    names: tuple[str, ...]
    of: Callable[[Values], State]


def whole(system: System) -> View:
    """Every variable."""
    names = tuple(variable.name for variable in system.layout.variables)
    return View(names, lambda values: tuple(values[name] for name in names))


def shared(system: System) -> View:
    """What the shipped runtime knows too.

    Of the admission system: no history variables, and of a pin only whether it is held and, while a hit may ask for
    it again, whether it is lost.
    """
    names = tuple(v.name for v in system.layout.variables if v.name.rpartition(".")[2] not in HISTORY)
    pins = {place: name.removesuffix("pin") for place, name in enumerate(names) if name.endswith(".pin")}

    def of(values: Values) -> State:
        state = [values[name] for name in names]
        for place, who in pins.items():
            state[place] = pin(str(state[place]), str(values[f"{who}state"]))
        return tuple(state)

    return View(names, of)


def pin(state: str, holder: str) -> str:
    """A pin as far as it matters: pinned, lost, or free."""
    if state == "pinned":
        return "pinned"
    return "lost" if state == "lost" and holder in IN_FLIGHT else "free"
