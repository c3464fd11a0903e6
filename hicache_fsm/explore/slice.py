"""Which steps of a counterexample matter, and through which variables: a slice backwards from what fails.

What fails reads some variables; the step that last changed one of them matters, and so does, before it, every
step that set what this one read.  A shortest path has few steps that do not.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hicache_fsm.explore.result import Trace
from hicache_fsm.model.expr import Expr, evaluate, values_below, variable
from hicache_fsm.model.system import Action, Goal, System

State = Mapping[str, int]
Failure = Literal["state", "step", "goal"]


@dataclass(frozen=True, slots=True)
class Matter:
    """What one step contributes: each variable that it sets, and the later steps that read it.

    Steps count from 1; one more than the last is what fails in the end.  Without variables the step is beside
    the point, except for a last step that is itself what fails.
    """

    sets: Mapping[str, tuple[int, ...]]
    fails: bool = False

    @property
    def counts(self) -> bool:
        """Whether anything later depends on the step."""
        return self.fails or bool(self.sets)


def matters(system: System, invariant: str, trace: Trace) -> tuple[Matter, ...]:
    """What each step of a trace of `system` contributes to the violation at its end, in the trace's order."""
    actions = [system.actions[step.number] for step in trace.steps]
    states = [*_replay(system, actions)]
    what, needed = _needed(system, invariant, actions, states)
    end = len(actions) + 1
    readers: dict[str, set[int]] = {name: {end} for name in needed}
    found: list[Matter] = []
    for number in range(len(actions), 0, -1):
        action, before, after = actions[number - 1], states[number - 1], states[number]
        fails = what != "state" and number == len(actions)
        sets = {} if fails and what == "step" else _sets(action, before, after, readers)
        found.append(Matter(sets, fails))
        if not found[-1].counts:
            continue
        for name in sets:
            del readers[name]
        reads = {name for written in sets for name in support(action.updates[written], before)}
        for name in reads | support(action.guard, before):
            readers.setdefault(name, set()).add(number)
    return tuple(reversed(found))


def support(root: Expr, state: State) -> frozenset[str]:
    """Variables that together decide the value in this state, whatever the others are: few, if not the fewest."""
    value = values_below(root, state)
    found: dict[Expr, frozenset[str]] = {}
    for node in value:
        args = node.args if node.op != "const" else ()
        parts = [found[arg] for arg in args]
        match node.op:
            case "var":
                found[node] = frozenset({str(node.value)})
            case "and" | "or":
                deciding = int(node.op == "or")
                decided = [part for arg, part in zip(args, parts, strict=True) if value[arg] == deciding]
                found[node] = min(decided, key=_size) if decided else frozenset().union(*parts)
            case "where":
                found[node] = parts[0] | (parts[1] if value[args[0]] else parts[2])
            case _:
                found[node] = frozenset().union(*parts)
    return found[root]


def _size(names: frozenset[str]) -> tuple[int, list[str]]:
    return len(names), sorted(names)


def _replay(system: System, actions: Iterable[Action]) -> Iterator[State]:
    state: State = dict(system.initial)
    yield state
    for action in actions:
        state = {**state, **{name: evaluate(value, state) for name, value in action.updates.items()}}
        yield state


def _sets(
    action: Action, before: State, after: State, readers: Mapping[str, set[int]]
) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(sorted(numbers))
        for name, numbers in sorted(readers.items())
        if name in action.updates and before[name] != after[name]
    }


def _needed(
    system: System, invariant: str, actions: list[Action], states: list[State]
) -> tuple[Failure, frozenset[str]]:
    """What fails, and what it reads: of the state at the end, or of the one before the step that is judged.

    The last step is the one that puts a goal out of reach.
    """
    last = states[-1]
    for check in system.states:
        if check.invariant == invariant and not evaluate(check.holds, last):
            return "state", support(check.holds, last)
    if actions:
        action, before = actions[-1], states[-2]
        post = {
            each.name: action.updates.get(each.name, variable(each.name)) for each in system.layout.variables
        }
        for step in system.steps:
            if step.invariant == invariant:
                holds = step.holds(action, post)
                if not evaluate(holds, before):
                    return "step", support(holds, before)
    goals = [goal for goal in system.goals if goal.invariant == invariant]
    open_goals = (goal for goal in goals if evaluate(goal.start, last) and not evaluate(goal.goal, last))
    return "goal", frozenset().union(*(_blocked(system, goal, last) for goal in open_goals))


def _blocked(system: System, goal: Goal, state: State) -> frozenset[str]:
    """What keeps a goal off: that it ought to be reached, and the guards of the steps that would reach it."""
    found = support(goal.start, state)
    for action in system.actions:
        if not goal.allowed(action) or evaluate(action.guard, state):
            continue
        after = {**state, **{name: evaluate(value, state) for name, value in action.updates.items()}}
        if evaluate(goal.goal, after):
            found |= support(action.guard, state)
    return found
