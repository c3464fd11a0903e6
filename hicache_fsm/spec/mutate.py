"""Changes of a spec, each a new value: what a witness removes, and other constants for a profile."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Literal as OneOf
from typing import get_args, get_origin, get_type_hints

from hicache_fsm.spec.types import Constant, Constants, Machine, Profile, Spec, Transition, Witness


def apply_witness(spec: Spec, witness: Witness, profile: str = "recommended") -> Spec:
    """The spec with the witness's change made, and nothing checked again.

    A guard is named as its literal is written, `due` or `!due`, and only that literal leaves the rows, which
    may then overlap on purpose; where they do, the compiled table takes the first in file order.  `source`
    and `dest`, if given, narrow any change of a machine to the rows that match.

    Raises ValueError if the change names something unknown, or matches nothing.
    """
    if witness.action == "set":
        return set_constant(spec, profile, **{witness.target: witness.value})
    machine = spec.machines.get(witness.machine)
    if machine is None:
        raise ValueError(f'unknown machine "{witness.machine}"{_suggest(witness.machine, spec.machines)}')
    mutated = replace(machine, transitions=_mutate_rows(machine, witness))
    if mutated == machine:
        raise ValueError(f'"{witness}" matches nothing')
    return replace(spec, machines={**spec.machines, machine.name: mutated})


def set_constant(spec: Spec, profile: str, **constants: Constant) -> Spec:
    """The spec with other constants in one profile.

    Raises ValueError for an unknown profile or constant, or a value of the wrong type.
    """
    return replace(spec, profiles={**spec.profiles, profile: _profile(spec, profile, constants)})


def coerce_constant(name: str, value: object) -> Constant:
    """`value` as the constant `name` takes it: an integer will do for a fraction, a bool for no number.

    Raises ValueError with the reason, for an unknown name, a wrong type or a number out of range.
    """
    types = get_type_hints(Constants)
    if name not in types:
        raise ValueError(f'unknown constant "{name}"{_suggest(name, types)}')
    wanted = types[name]
    if get_origin(wanted) is OneOf:
        if isinstance(value, str) and value in get_args(wanted):
            return value
        raise ValueError(f"{name} is one of {', '.join(get_args(wanted))}, not {value!r}")
    if wanted is bool and isinstance(value, bool):
        return value
    if wanted is int and isinstance(value, int) and not isinstance(value, bool):
        if value >= 0:
            return value
        raise ValueError(f"{name} counts from 0 up, not {value}")
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        if 0 <= value <= 1:
            return float(value)
        raise ValueError(f"{name} is a share between 0 and 1, not {value}")
    kind = {bool: "true or false", int: "an integer", float: "a number"}[wanted]
    raise ValueError(f"{name} is {kind}, not {value!r}")


def _profile(spec: Spec, name: str, constants: dict[str, Constant]) -> Profile:
    profile = spec.profiles.get(name)
    if profile is None:
        raise ValueError(f'unknown profile "{name}"{_suggest(name, spec.profiles)}')
    checked = {constant: coerce_constant(constant, value) for constant, value in constants.items()}
    # mypy can't see that each value was coerced to its own field's type.
    return replace(profile, constants=replace(profile.constants, **checked))  # type: ignore[arg-type]


def _mutate_rows(machine: Machine, witness: Witness) -> tuple[Transition, ...]:
    change = _change(machine, witness)
    mutated = (change(t) if _selects(witness, t) else t for t in machine.transitions)
    return tuple(t for t in mutated if t is not None)


def _selects(witness: Witness, row: Transition) -> bool:
    return (
        row.event == witness.event and witness.source in ("", row.source) and witness.dest in ("", row.dest)
    )


def _change(machine: Machine, witness: Witness) -> Callable[[Transition], Transition | None]:
    name, instead = witness.name, witness.value
    match witness.action, witness.target:
        case "drop", "transition":
            return lambda row: None
        case "drop", "guard":
            return lambda row: replace(row, guard=tuple(g for g in row.guard if str(g) != name))
        case "drop", "effect":
            return lambda row: replace(row, effects=tuple(e for e in row.effects if e != name))
        case "swap", "effect":
            if not isinstance(instead, str) or instead not in machine.effects:
                raise ValueError(f'unknown effect "{instead}"{_suggest(str(instead), machine.effects)}')
            other = instead
            return lambda row: replace(row, effects=tuple(other if e == name else e for e in row.effects))
    raise ValueError(f'no such change: {witness.action} "{witness.target}"')


def _suggest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
