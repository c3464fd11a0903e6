"""What is wrong with a spec whose shape is right: names, ambiguity, dead ends, references between files."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from itertools import combinations

from hicache_fsm.spec.mutate import apply_witness, coerce_constant
from hicache_fsm.spec.types import Invariant, Literal, Machine, Profile, Spec, Transition, Witness


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the file and table that say it, why it is wrong, and what would mend it."""

    file: str
    table: str
    reason: str
    mend: str

    def __str__(self) -> str:
        return f"{self.file}: {self.table}: {self.reason}; mend: {self.mend}"


def validate(spec: Spec) -> list[Problem]:
    """Everything that is wrong: machine by machine, then what invariants and profiles refer to.

    The graph of a machine is judged only once its names resolve, so that one slip gives one problem.
    """
    problems = [problem for machine in spec.machines.values() for problem in validate_machine(machine)]
    problems += _numbers(spec.invariants.values())
    for place, invariant in enumerate(spec.invariants.values()):
        problems += _invariant(spec, invariant, f"[[invariants]] #{place} ({invariant.id})")
    for profile in spec.profiles.values():
        problems += _profile(spec, profile)
    return problems


def validate_machine(machine: Machine) -> list[Problem]:
    """Everything that is wrong with one machine by itself."""
    problems = list(_names(machine))
    if not problems:
        problems += _contradictions(machine)
        problems += _overlaps(machine)
        problems += _graph(machine)
        problems += _unused(machine)
    return problems


def _file(machine: Machine) -> str:
    return f"{machine.name}.toml"


def _label(row: Transition) -> str:
    return f"[[transitions]] #{row.row} ({row.event} from {row.source})"


def _unknown(kind: str, name: str, known: Collection[str]) -> tuple[str, str]:
    """The reason and the mend for a name that nothing declares."""
    close = get_close_matches(name, known, n=1)
    mend = f"declare it under [{kind}s]" if kind != "machine" else "add its file"
    return f'unknown {kind} "{name}"', mend + (f' or write "{close[0]}"' if close else "")


def _names(machine: Machine) -> Iterator[Problem]:
    file = _file(machine)
    declared = {
        "state": machine.states,
        "event": machine.events,
        "guard": machine.guards,
        "effect": machine.effects,
    }
    for kind, names in declared.items():
        for name in names:
            if not (name.isidentifier() and name.isascii()):
                yield Problem(
                    file,
                    f"[{kind}s]",
                    f'{kind} "{name}" is not an identifier',
                    "use letters, digits and underscores",
                )
    if machine.initial not in machine.states:
        yield Problem(file, "initial", *_unknown("state", machine.initial, machine.states))
    reported: set[tuple[str, str, str]] = set()
    for row in machine.transitions:
        used = [
            ("event", row.event),
            ("state", row.source),
            ("state", row.dest),
            *(("guard", literal.guard) for literal in row.guard),
            *(("effect", effect) for effect in row.effects),
        ]
        for kind, name in used:
            # A table with many sources makes many rows, yet one slip in it is one problem.
            if name not in declared[kind] and (kind, name, row.event) not in reported:
                reported.add((kind, name, row.event))
                yield Problem(file, _label(row), *_unknown(kind, name, declared[kind]))


def _contradictions(machine: Machine) -> Iterator[Problem]:
    for row in machine.transitions:
        for guard, times in Counter(literal.guard for literal in row.guard).items():
            if times == 1:
                continue
            signs = {literal.positive for literal in row.guard if literal.guard == guard}
            reason = (
                f'guard "{guard}" contradicts "!{guard}"'
                if len(signs) == 2
                else f'guard "{guard}" is repeated'
            )
            yield Problem(_file(machine), _label(row), reason, "keep one of them")


def _overlaps(machine: Machine) -> Iterator[Problem]:
    for first, second in combinations(machine.transitions, 2):
        if (first.source, first.event) != (second.source, second.event):
            continue
        if set(first.guard) == set(second.guard):
            yield Problem(
                _file(machine), _label(second), f"duplicate of row #{first.row}", "remove one of the two"
            )
        elif not _exclusive(first, second):
            yield Problem(
                _file(machine),
                _label(second),
                f"ambiguous with row #{first.row}: {_condition(first)}, and {_condition(second)}",
                "let one guard appear plain in one row and negated in the other",
            )


def _exclusive(first: Transition, second: Transition) -> bool:
    return any(Literal(literal.guard, not literal.positive) in first.guard for literal in second.guard)


def _condition(row: Transition) -> str:
    return f'"{" ".join(map(str, row.guard))}"' if row.guard else "no guard"


def _graph(machine: Machine) -> Iterator[Problem]:
    file = _file(machine)
    forward: dict[str, set[str]] = {name: set() for name in machine.states}
    backward: dict[str, set[str]] = {name: set() for name in machine.states}
    for row in machine.transitions:
        if row.source in machine.terminal:
            yield Problem(
                file, _label(row), f'state "{row.source}" is terminal', "remove the row or the mark"
            )
        if row.source != row.dest:
            forward[row.source].add(row.dest)
            backward[row.dest].add(row.source)

    reached = _closure([machine.initial], forward)
    ending = (
        _closure(machine.terminal, backward) if machine.terminal else {s for s, out in forward.items() if out}
    )
    for name in machine.states:
        if name not in reached:
            yield Problem(
                file,
                f"[states.{name}]",
                f'no way leads here from "{machine.initial}"',
                "add a transition or remove it",
            )
        elif name not in ending and name not in machine.terminal:
            goal = "to a terminal state" if machine.terminal else "out"
            yield Problem(
                file,
                f"[states.{name}]",
                f"a trap: no way leads {goal}",
                "add a transition or mark it terminal",
            )


def _closure(start: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    seen = set(start)
    todo = list(seen)
    while todo:
        new = edges[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def _unused(machine: Machine) -> Iterator[Problem]:
    rows = machine.transitions
    used = {
        "event": (machine.events, {row.event for row in rows}),
        "guard": (machine.guards, {literal.guard for row in rows for literal in row.guard}),
        "effect": (machine.effects, {effect for row in rows for effect in row.effects}),
    }
    for kind, (declared, names) in used.items():
        for name in declared:
            if name not in names:
                yield Problem(
                    _file(machine),
                    f"[{kind}s.{name}]",
                    f"{kind} is never used",
                    "use it in a transition or remove it",
                )


def _numbers(invariants: Iterable[Invariant]) -> Iterator[Problem]:
    seen: dict[int, str] = {}
    for place, invariant in enumerate(invariants):
        if invariant.number in seen:
            yield Problem(
                "invariants.toml",
                f"[[invariants]] #{place} ({invariant.id})",
                f'number {invariant.number} is taken by "{seen[invariant.number]}"',
                "give every invariant its own number",
            )
        seen.setdefault(invariant.number, invariant.id)


def _invariant(spec: Spec, invariant: Invariant, label: str) -> Iterator[Problem]:
    def problem(reason: str, mend: str) -> Problem:
        return Problem("invariants.toml", label, reason, mend)

    for name in invariant.machines:
        if name not in spec.machines:
            yield problem(*_unknown("machine", name, spec.machines))
    unresolved = list(_witness_names(spec, invariant.witness, problem))
    yield from unresolved
    if not unresolved:
        try:
            apply_witness(spec, invariant.witness)
        except ValueError as error:
            yield problem(f"the witness fails: {error}", "name a change of what the spec says")


def _witness_names(spec: Spec, witness: Witness, problem: Callable[[str, str], Problem]) -> Iterator[Problem]:
    if witness.action == "set":
        return
    machine = spec.machines.get(witness.machine)
    if machine is None:
        yield problem(*_unknown("machine", witness.machine, spec.machines))
        return
    named: list[tuple[str, str, Collection[str]]] = [("event", witness.event, machine.events)]
    named += [("state", state, machine.states) for state in (witness.source, witness.dest) if state]
    if witness.target == "guard":
        named.append(("guard", witness.name.removeprefix("!"), machine.guards))
    if witness.target == "effect":
        named.append(("effect", witness.name, machine.effects))
    for kind, name, known in named:
        if name not in known:
            yield problem(*_unknown(kind, name, known))


def _profile(spec: Spec, profile: Profile) -> Iterator[Problem]:
    file = f"profiles/{profile.name}.toml"
    for name, value in asdict(profile.constants).items():
        try:
            coerce_constant(name, value)
        except ValueError as error:
            yield Problem(file, "[constants]", str(error), f"correct {name}")
    for place, finding in enumerate(profile.findings):
        if finding.invariant not in spec.invariants:
            reason, _ = _unknown("invariant", finding.invariant, spec.invariants)
            close = get_close_matches(finding.invariant, spec.invariants, n=1)
            mend = f'write "{close[0]}"' if close else "add it to invariants.toml"
            yield Problem(file, f"[[findings]] #{place}", reason, mend)
