"""Reading `spec/` into immutable values, or into a list of everything that is wrong with it."""

import tomllib
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any, cast

from hicache_fsm.spec.mutate import coerce_constant
from hicache_fsm.spec.shape import Table
from hicache_fsm.spec.types import (
    Constant,
    Constants,
    Effect,
    Event,
    Finding,
    Guard,
    Invariant,
    Literal,
    Machine,
    Profile,
    Spec,
    State,
    Transition,
    Witness,
)
from hicache_fsm.spec.validate import Problem, validate, validate_machine


class SpecError(Exception):
    """The spec is wrong; `problems` says where, why and what would mend it, one line each."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def spec_dir() -> Path:
    """The directory of the spec that belongs to this package: inside a wheel, or at the top of a checkout."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_data" / "spec"
    return packaged if packaged.is_dir() else package.parent / "spec"


def load_spec(path: Path | None = None) -> Spec:
    """The spec in the directory `path`, or this package's own.

    Raises SpecError with every problem found: unreadable files and wrong shapes in any file, nonsense in each
    file whose shape is right, and wrong references between files once every shape is right.
    """
    root = spec_dir() if path is None else path
    if not root.is_dir():
        raise SpecError([Problem(str(root), "directory", "not found", "name the spec's directory")])
    problems: list[Problem] = []
    tables = [
        _read(file, root, problems) for file in sorted(root.glob("*.toml")) if file.stem != "invariants"
    ]
    machines = [machine for table in tables if table and (machine := _machine(table))]
    table = _read(root / "invariants.toml", root, problems)
    invariants = _invariants(table) if table else {}
    tables = [_read(file, root, problems) for file in sorted((root / "profiles").glob("*.toml"))]
    profiles = [profile for table in tables if table and (profile := _profile(table))]
    if not problems:
        if not machines:
            problems.append(Problem(str(root), "directory", "no machine", "add one TOML file per machine"))
        if not profiles:
            problems.append(
                Problem(str(root / "profiles"), "directory", "no profile", "add one TOML file per profile")
            )

    spec = Spec(
        {machine.name: machine for machine in machines},
        invariants,
        {profile.name: profile for profile in profiles},
    )
    if problems:
        problems += [problem for machine in machines for problem in validate_machine(machine)]
    else:
        problems = validate(spec)
    if problems:
        raise SpecError(problems)
    return spec


def _read(file: Path, root: Path, problems: list[Problem]) -> Table | None:
    name = file.relative_to(root).as_posix()
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        problems.append(Problem(name, f"byte {error.start}", "not UTF-8 text", "save the file as UTF-8 text"))
    except tomllib.TOMLDecodeError as error:
        reason, _, at = str(error).removesuffix(")").rpartition(" (at ")
        problems.append(
            Problem(name, at or "file", f"not TOML: {reason or error}", "correct the syntax there")
        )
    except OSError as error:
        problems.append(Problem(name, "file", error.strerror or str(error), "provide the file, readable"))
    else:
        return Table(name, "", "top level", values, problems)
    return None


def _file_name(table: Table, kind: str) -> str:
    """What the file says that it describes, which must be what it is called."""
    name = table.text(kind)
    stem = PurePosixPath(table.file).name.removesuffix(".toml")
    if name and name != stem:
        table.complain(f'the file describes {kind} "{name}"', f'write {kind} = "{stem}" or rename the file')
    return name


def _machine(table: Table) -> Machine | None:
    before = len(table.problems)
    name = _file_name(table, "machine")
    about = table.text("about")
    key = table.texts("key")
    initial = table.text("initial")
    states = {child.key: _state(child) for child in table.children("states")}
    events = {child.key: _event(child) for child in table.children("events")}
    guards = {child.key: _guard(child) for child in table.children("guards", {})}
    effects = {child.key: _effect(child) for child in table.children("effects", {})}
    transitions: list[Transition] = []
    for child in table.items("transitions"):
        transitions += _transitions(child, len(transitions))
    table.close()
    if len(table.problems) > before:
        return None
    return Machine(
        name,
        about,
        key,
        initial,
        states,
        events,
        guards,
        effects,
        tuple(transitions),
    )


def _state(table: Table) -> State:
    upstream = table.child("upstream") if "upstream" in table.values else None
    versions = None if upstream is None else upstream.all_texts()
    state = State(table.key, table.text("about"), table.flag("terminal"), versions)
    table.close(["upstream"])
    return state


def _event(table: Table) -> Event:
    event = Event(table.key, table.text("about"), table.text("by"))
    table.close()
    return event


def _guard(table: Table) -> Guard:
    kind = table.choice("kind", ("fact", "context", "profile"))
    guard = Guard(table.key, table.text("about"), cast(Any, kind))
    table.close()
    return guard


def _effect(table: Table) -> Effect:
    effect = Effect(table.key, table.text("about"))
    table.close()
    return effect


def _transitions(table: Table, first_row: int) -> list[Transition]:
    sources = table.values.get("source")
    origin = ", ".join(map(str, sources)) if isinstance(sources, list) else sources
    table.label = f"[[transitions]] #{first_row} ({table.values.get('event', '?')} from {origin or '?'})"
    event = table.text("event")
    dest = table.text("dest")
    guard = tuple(
        Literal(text.removeprefix("!"), not text.startswith("!")) for text in table.texts("guard", ())
    )
    effects = table.texts("effects", ())
    why = table.text("why", "")
    rows = [
        Transition(row, event, source, source if dest == "=" else dest, guard, effects, why)
        for row, source in enumerate(table.texts("source"), first_row)
    ]
    table.close()
    return rows


def _profile(table: Table) -> Profile | None:
    before = len(table.problems)
    name = _file_name(table, "profile")
    about = table.text("about")
    sglang = table.texts("sglang")
    chosen = table.child("constants")
    constants = None if chosen is None else _constants(chosen)
    findings = tuple(_finding(child) for child in table.items("findings", []))
    table.close()
    if constants is None or len(table.problems) > before:
        return None
    return Profile(name, about, sglang, constants, findings)


def _constants(table: Table) -> Constants | None:
    names = [field.name for field in fields(Constants)]
    values: dict[str, Constant] = {}
    for name in names:
        if name not in table.values:
            table.complain(f"{name} is not set", f"add {name} = ...")
            continue
        try:
            values[name] = coerce_constant(name, table.values[name])
        except ValueError as error:
            table.complain(str(error), f"correct {name}")
    table.close(names)
    return Constants(**cast(Any, values)) if len(values) == len(names) else None


def _finding(table: Table) -> Finding:
    shown = table.choice("shown_by", ("search", "replay")) if "shown_by" in table.values else "search"
    finding = Finding(table.text("invariant"), table.texts("upstream"), table.text("why"), cast(Any, shown))
    table.close()
    return finding


def _invariants(table: Table) -> dict[str, Invariant]:
    invariants: dict[str, Invariant] = {}
    for child in table.items("invariants"):
        child.label += f" ({child.values.get('id', '?')})"
        invariant = _invariant(child)
        if invariant.id in invariants:
            child.complain(f'id "{invariant.id}" is taken', "give every invariant its own id")
        invariants[invariant.id] = invariant
    table.close()
    return invariants


def _invariant(table: Table) -> Invariant:
    change = table.child("witness")
    invariant = Invariant(
        table.text("id"),
        table.number("number"),
        cast(Any, table.choice("kind", ("state", "step", "eventually"))),
        table.texts("systems"),
        table.texts("machines"),
        table.text("sentence"),
        table.text("why"),
        table.texts("checked"),
        Witness("drop", "") if change is None else _witness(change),
    )
    table.close()
    return invariant


def _witness(table: Table) -> Witness:
    actions = [action for action in ("drop", "swap", "set") if action in table.values]
    if len(actions) != 1:
        table.complain("a witness makes one change", "give it one of drop, swap or set")
        return Witness("drop", "")
    action = actions[0]
    target = table.text(action)
    if action == "set":
        witness = Witness("set", target, value=table.scalar("to"))
    else:
        witness = Witness(
            cast(Any, action),
            target,
            table.text("machine"),
            table.text("event"),
            table.text("name", "" if target == "transition" else None),
            table.text("source", ""),
            table.text("dest", ""),
            table.text("with") if action == "swap" else "",
        )
    table.close()
    return witness
