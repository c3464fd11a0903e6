"""A counterexample to induction: two states and the step between them, in the spec's words."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hicache_fsm.model.expr import Expr, evaluate
from hicache_fsm.model.system import Action
from hicache_fsm.prove.parametric import Parametric


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A step from a state that all the assumed conjuncts admit, which breaks `claim`.

    The state need not be reachable; it is `plausible` if it meets all conjuncts, the claim included.
    `before` and `after` hold every variable in words, `rows` the rows of the tables that the step takes; a
    broken initial state has no action, and `before` is it.  A state that ought to have a step on its way, and has
    none, has no action either: `way` says where to.
    """

    claim: str
    action: str
    rows: tuple[str, ...]
    parameters: Mapping[str, int]
    before: Mapping[str, str]
    after: Mapping[str, str]
    plausible: bool
    way: str = ""

    @property
    def changed(self) -> dict[str, tuple[str, str]]:
        """The old and the new value of each variable that the step changes."""
        return {name: (old, self.after[name]) for name, old in self.before.items() if old != self.after[name]}

    def lines(self) -> list[str]:
        """The counterexample for people: parameters, the state, the step, what it changes."""
        sizes = ", ".join(f"{name} {value}" for name, value in self.parameters.items())
        state = ", ".join(
            f"{name} {value}" for name, value in self.before.items() if value not in ("0", "none")
        )
        found = [f"with    {sizes}", f"state   {state}"]
        if self.action:
            changes = ", ".join(f"{name}: {old} → {new}" for name, (old, new) in self.changed.items())
            found += [
                f"step    {self.action}",
                *(f"  row   {row}" for row in self.rows),
                f"then    {changes}",
            ]
        if self.way:
            found.append(f"stuck   no step leads on to where {self.way}")
        return [*found, f"breaks  {self.claim}"]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def as_json(self) -> dict[str, Any]:
        """The counterexample as plain values."""
        return {
            "claim": self.claim,
            "parameters": dict(self.parameters),
            "before": dict(self.before),
            "action": self.action,
            "rows": list(self.rows),
            "after": dict(self.after),
            "plausible": self.plausible,
            "way": self.way,
        }


def counterexample(
    system: Parametric,
    claim: str,
    action: Action | None,
    value: Callable[[str], int],
    plausible: bool,
    way: str = "",
) -> Counterexample:
    """The counterexample in which `value` gives each variable and parameter its number."""
    numbers = {each.name: value(each.name) for each in system.layout.variables}
    parameters = {name: value(name) for name in system.parameters}
    if action is None and not way:
        numbers = {name: evaluate(initial, parameters) for name, initial in system.initial.items()}
    before = {**numbers, **parameters}
    updates: Mapping[str, Expr] = action.updates if action else {}
    after = {**before, **{name: evaluate(new, before) for name, new in updates.items()}}
    rows = action.rows if action else ()
    return Counterexample(
        claim,
        action.name if action else "",
        tuple(f"{row.machine}.{row.label}" for row, condition in rows if evaluate(condition, before)),
        {name: n for name, n in parameters.items() if name not in system.choices or _reads(action, name)},
        _words(system, before),
        _words(system, after),
        plausible,
        way,
    )


def _reads(action: Action | None, choice: str) -> bool:
    return action is not None and choice in action.name


def _words(system: Parametric, state: Mapping[str, int]) -> dict[str, str]:
    return {
        each.name: each.names[state[each.name]]
        if state[each.name] in range(len(each.names))
        else str(state[each.name])
        for each in system.layout.variables
    }
