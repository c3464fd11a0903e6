"""What is proved by induction, and what each proof leans on."""

from dataclasses import dataclass

from hicache_fsm.model.expr import Expr
from hicache_fsm.model.system import StepCheck


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
class Theory:
    """Everything that is to be proved of one system."""

    conjuncts: tuple[Conjunct, ...]
    steps: tuple[StepClaim, ...]

    def without(self, name: str) -> "Theory":
        """The theory that has forgotten one conjunct, and does not lean on it any more."""
        return Theory(
            tuple(
                Conjunct(c.name, c.holds, _except(c.needs, name), c.why)
                for c in self.conjuncts
                if c.name != name
            ),
            tuple(StepClaim(claim.check, _except(claim.needs, name)) for claim in self.steps),
        )

    def obligations(self, invariant: str) -> list[str]:
        """The conjunct and the step claim that say the invariant."""
        conjuncts = [c.name for c in self.conjuncts if c.name == invariant]
        return conjuncts + [claim.name for claim in self.steps if claim.check.invariant == invariant]

    def foundation(self, invariant: str) -> list[str]:
        """All obligations that a proof of the invariant consists of: its own, and what they lean on."""
        needs = {c.name: c.needs for c in self.conjuncts}
        needs |= {claim.name: claim.needs for claim in self.steps}
        found = self.obligations(invariant)
        for name in found:
            found += [need for need in needs[name] if need not in found and need in needs]
        return found


def _except(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(each for each in names if each != name)
