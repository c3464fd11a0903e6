"""What is proved by induction, and what each proof leans on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hicache_fsm.model.expr import Expr
from hicache_fsm.model.system import Action, StepCheck


@dataclass(frozen=True, slots=True)
class Conjunct:
    """A state condition that the induction keeps; a lemma if no invariant says it.

    `needs` names the other conjuncts that its step is proved from, `why` what a lemma is for.
    """

    name: str
    holds: Expr
    needs: tuple[str, ...] = ()
    why: str = ""

    @property
    def is_lemma(self) -> bool:
        """Whether it serves other proofs only."""
        return bool(self.why)


@dataclass(frozen=True, slots=True)
class StepClaim:
    """A condition on steps, proved for every step from a state where all of `needs` hold."""

    check: StepCheck
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the claim is called: an invariant may have a state condition, too."""
        return f"{self.check.invariant} (steps)"


@dataclass(frozen=True, slots=True)
class WayOn:
    """From every state with `when`, and all of `needs`, some step that `allowed` admits has `leads_on` of its outcome.

    With a rank in `leads_on` that falls and cannot fall for ever, this proves that a goal stays reachable: each
    step of the way there is such a step.  `leads_on` is a condition on the old state, given the new values;
    `chosen` are the values that the way takes for what a step may choose.
    """

    invariant: str
    about: str
    when: Expr
    leads_on: Callable[[Mapping[str, Expr]], Expr]
    allowed: Callable[[Action], bool]
    needs: tuple[str, ...] = ()
    chosen: Mapping[str, Expr] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the claim is called: an invariant may have a state condition, and several ways."""
        return f"{self.invariant} ({self.about})"


@dataclass(frozen=True, slots=True)
class Theory:
    """Everything that is to be proved of one system."""

    conjuncts: tuple[Conjunct, ...]
    steps: tuple[StepClaim, ...]
    ways: tuple[WayOn, ...] = ()

    def without(self, name: str) -> "Theory":
        """The theory that has forgotten one conjunct, and does not lean on it any more."""
        return Theory(
            tuple(
                replace(each, needs=_except(each.needs, name)) for each in self.conjuncts if each.name != name
            ),
            tuple(replace(each, needs=_except(each.needs, name)) for each in self.steps),
            tuple(replace(each, needs=_except(each.needs, name)) for each in self.ways),
        )

    def obligations(self, invariant: str) -> list[str]:
        """The conjunct, the step claims and the ways that say the invariant."""
        found = [c.name for c in self.conjuncts if c.name == invariant]
        found += [claim.name for claim in self.steps if claim.check.invariant == invariant]
        return found + [way.name for way in self.ways if way.invariant == invariant]

    def foundation(self, invariant: str) -> list[str]:
        """All obligations that a proof of the invariant consists of: its own, and what they lean on."""
        needs = {c.name: c.needs for c in self.conjuncts}
        needs |= {claim.name: claim.needs for claim in self.steps}
        needs |= {way.name: way.needs for way in self.ways}
        found = self.obligations(invariant)
        for name in found:
            found += [need for need in needs[name] if need not in found and need in needs]
        return found


def _except(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)
