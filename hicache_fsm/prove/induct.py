"""Proof by induction over a system's steps, one small question to z3 at a time."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import z3

from hicache_fsm.model.expr import FALSE, TRUE, Expr, substitute, variable, walk
from hicache_fsm.model.system import Action
from hicache_fsm.prove.conjuncts import Conjunct, StepClaim, Theory, WayOn
from hicache_fsm.prove.counterexample import Counterexample, counterexample
from hicache_fsm.prove.parametric import Parametric
from hicache_fsm.prove.translate import Reader, Term

Answer = Literal["PROVED", "FAILED", "UNDETERMINED"]

READABLE: Final = (9, 4, 2)
"""A counterexample is made to keep to numbers up to these where it can."""


@dataclass(frozen=True, slots=True)
class Obligation:
    """What came of one conjunct or step claim of one system: `queries` questions in `seconds`."""

    name: str
    answer: Answer
    queries: int
    seconds: float
    counterexample: Counterexample | None = None


class Induction:
    """Asks z3 about one system and its theory; every question gets `timeout_s` seconds at most."""

    def __init__(self, system: Parametric, theory: Theory, timeout_s: float) -> None:
        self._system = system
        self._theory = theory
        self._reader = Reader()
        self._solver = z3.Solver()
        self._solver.set("timeout", int(1000 * timeout_s))
        for assumption in system.assumptions:
            self._solver.add(self._reader.term(assumption))
        self._assumed = {c.name: self._literal(c.name, self._reader.term(c.holds)) for c in theory.conjuncts}
        self._small = [self._literal(f"up to {most}", self._within(most)) for most in READABLE]
        self._usual = [
            self._literal(f"{name} as at first", z3.Int(name) == self._reader.term(value))
            for name, value in system.initial.items()
        ]
        self._steps = [_Step(action, self._reader) for action in system.actions]

    def prove(
        self, names: Iterable[str], tell: Callable[[str], None] = lambda _: None
    ) -> Iterator[Obligation]:
        """The named obligations, conjuncts or step claims, one by one."""
        for name in names:
            tell(f"{self._system.name}: {name}")
            started = time.perf_counter()
            questions = self._questions(name)
            answer: Answer = "PROVED"
            shown: Counterexample | None = None
            asked = 0
            for question in questions:
                asked += 1
                answer = self._ask(question)
                if answer != "PROVED":
                    break
            if answer == "FAILED":
                shown = self._show(name, [question, *questions])
            yield Obligation(name, answer, asked, time.perf_counter() - started, shown)

    def dead(self) -> list[str]:
        """The steps that no state with all conjuncts enables: what is proved of them says nothing."""
        everything = list(self._assumed.values())
        return [step.action.name for step in self._steps if self._check(step.guard, everything) == z3.unsat]

    def _questions(self, name: str) -> "Iterator[_Question]":
        for conjunct in self._theory.conjuncts:
            if conjunct.name == name:
                yield from self._kept(conjunct)
        for claim in self._theory.steps:
            if claim.name == name:
                yield from self._claimed(claim)
        for way in self._theory.ways:
            if way.name == name:
                yield self._barred(way)

    def _kept(self, conjunct: Conjunct) -> "Iterator[_Question]":
        """Whether it fails at first, or after a step that writes what it reads."""
        initial = Reader({name: self._reader.term(value) for name, value in self._system.initial.items()})
        yield _Question(None, z3.Not(initial.term(conjunct.holds)), ())
        read = {str(node.value) for node in walk([conjunct.holds]) if node.op == "var"}
        for step in self._steps:
            if read & step.action.updates.keys():
                broken = z3.And(step.happens, z3.Not(step.after.term(conjunct.holds)))
                yield _Question(step.action, broken, (conjunct.name, *conjunct.needs))

    def _claimed(self, claim: StepClaim) -> "Iterator[_Question]":
        for step in self._steps:
            holds = claim.check.holds(step.action, _post(self._system, step.action))
            if holds != TRUE:
                broken = z3.And(step.guard, z3.Not(self._reader.term(holds)))
                yield _Question(step.action, broken, claim.needs)

    def _barred(self, way: WayOn) -> "_Question":
        """Whether there is a state from which no step of the way leads on."""
        steps = [
            self._reader.term(
                substitute(action.guard & way.leads_on(_post(self._system, action)), way.chosen)
            )
            for action in self._system.actions
            if way.allowed(action) and action.guard != FALSE
        ]
        broken = z3.And(self._reader.term(way.when), *(z3.Not(step) for step in steps))
        return _Question(None, broken, way.needs, way.about)

    def _ask(self, question: "_Question") -> Answer:
        """Whether the question, how the claim could break, has no answer."""
        found = self._check(question.broken, self._leaning(question))
        return "PROVED" if found == z3.unsat else "UNDETERMINED" if found == z3.unknown else "FAILED"

    def _leaning(self, question: "_Question") -> list[Term]:
        return [self._assumed[need] for need in question.needs if need in self._assumed]

    def _show(self, name: str, questions: "list[_Question]") -> Counterexample:
        """The break of one question, of the first that breaks although every conjunct holds, if there is one."""
        everything = list(self._assumed.values())
        plausible = (each for each in questions if self._check(each.broken, everything) == z3.sat)
        question = next(plausible, None)
        chosen = question or questions[0]
        model = self._readable(chosen.broken, everything if question else self._leaning(chosen))
        return counterexample(
            self._system, name, chosen.action, _value(model), question is not None, chosen.way
        )

    def _readable(self, broken: Term, assumed: list[Term]) -> Term:
        """A model of `broken` that keeps numbers small, to other conjuncts and to initial values where it can."""
        self._solver.push()
        self._solver.add(broken)
        kept = list(assumed)
        self._solver.check(*kept)
        model = self._solver.model()
        for wish in [*self._assumed.values(), *self._small, *self._usual]:
            if self._solver.check(*kept, wish) == z3.sat:
                kept.append(wish)
                model = self._solver.model()
        self._solver.pop()
        return model

    def _check(self, formula: Term, assumed: list[Term]) -> Term:
        self._solver.push()
        self._solver.add(formula)
        answer = self._solver.check(*assumed)
        self._solver.pop()
        return answer

    def _literal(self, name: str, formula: Term) -> Term:
        literal = z3.Bool(f"@{name}")
        self._solver.add(z3.Implies(literal, formula))
        return literal

    def _within(self, most: int) -> Term:
        names = [*self._system.parameters, *(each.name for each in self._system.layout.variables)]
        coded = {each.name for each in self._system.layout.variables if each.names}
        return z3.And(
            *(z3.And(z3.Int(name) >= -1, z3.Int(name) <= most) for name in names if name not in coded)
        )


@dataclass(frozen=True, slots=True)
class _Question:
    action: Action | None
    broken: Term
    needs: tuple[str, ...]
    way: str = ""


class _Step:
    """One action: `happens` ties the new values, which `after` reads, to the old ones."""

    def __init__(self, action: Action, reader: Reader) -> None:
        self.action = action
        self.guard = reader.term(action.guard)
        new = {name: z3.Int(f"{name}'") for name in action.updates}
        self.happens = z3.And(
            self.guard, *(new[name] == reader.term(value) for name, value in action.updates.items())
        )
        self.after = Reader(new)


def _post(system: Parametric, action: Action) -> Mapping[str, Expr]:
    return {each.name: action.updates.get(each.name, variable(each.name)) for each in system.layout.variables}


def _value(model: Term) -> Callable[[str], int]:
    return lambda name: int(model.eval(z3.Int(name), model_completion=True).as_long())
