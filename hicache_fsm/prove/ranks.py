"""Any number of ranks: two of them, whichever, and whether the answers of all the others have arrived.

Ranks meet in the agreement on drains only, which a rank reads as one number; so what is proved of any two is
proved of all.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hicache_fsm.model.expr import Expr, all_of, number, variable
from hicache_fsm.model.ranks import Scope, ranks_system
from hicache_fsm.prove.conjuncts import Conjunct, Theory
from hicache_fsm.prove.parametric import Parametric, any_pace, with_numbers, without_ends
from hicache_fsm.spec.types import Spec

PARAMETERS: Mapping[str, str] = {
    "interval": "passes between a miss and its re-issue",
    "max_attempts": "re-issues of the request",
    "others_arrived": "whether every other rank's answer has arrived",
}

SHARED = ("state", "asking", "marker", "asked", "waited", "asks_now")
"""What two ranks have in common; only when an answer arrives is their own."""


class AnyRanks(Scope):
    """Two ranks of any number, with an interval that is an expression."""

    __slots__ = ()

    def due(self, waited: Expr) -> Expr:
        """`rules.retry_due`, for an interval of 1 or more."""
        return waited.ge(self.constants.interval)

    @property
    def others(self) -> tuple[Expr, ...]:
        """Whether all the others' answers have arrived, anew on each pass."""
        return (variable("others_arrived"),)


def ranks_for_all(spec: Spec, profile: str) -> tuple[Parametric, Theory]:
    """Any number of ranks under any pace, and the theory of lockstep."""
    rules = spec.profiles[profile].constants
    rules = replace(rules, interval=max(rules.interval, 1), dense=False)
    bounded = ranks_system(spec, profile, "ranks", "ranks", Scope(with_numbers(rules), 2))
    layout = without_ends(bounded.layout)
    system = ranks_system(spec, profile, "ranks", "any number of ranks", AnyRanks(any_pace(rules), 2), layout)
    parametric = Parametric(
        "any number of ranks",
        PARAMETERS,
        (
            variable("interval").ge(1),
            variable("max_attempts").ge(0),
            variable("others_arrived").ge(0),
            variable("others_arrived").le(1),
        ),
        frozenset({"others_arrived"}),
        layout,
        {name: number(value) for name, value in system.initial.items()},
        system.actions,
        system.states,
    )
    lockstep = (Conjunct(check.invariant, check.holds, ("in-step",)) for check in system.states)
    lemma = Conjunct(
        "in-step", all_of(_shared()), (), "two ranks have everything in common but when answers arrive"
    )
    return parametric, Theory((*lockstep, lemma), ())


def _shared() -> Iterator[Expr]:
    return (variable(f"k0.{name}").eq(variable(f"k1.{name}")) for name in SHARED)
