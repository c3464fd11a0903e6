from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hicache_fsm.spec import (
    Effect,
    Event,
    Finding,
    Guard,
    Literal,
    Machine,
    Spec,
    State,
    Transition,
    load_spec,
    set_constant,
    validate,
)

Change = Callable[[Machine], Machine]


def row(number: int, **changes: object) -> Change:
    """The machine with one of its rows changed."""

    def change(machine: Machine) -> Machine:
        rows = list(machine.transitions)
        rows[number] = replace(rows[number], **changes)  # type: ignore[arg-type]
        return replace(machine, transitions=tuple(rows))

    return change


def extra(event: str, source: str, dest: str, *guard: str) -> Change:
    """The machine with one more row."""

    def change(machine: Machine) -> Machine:
        literals = tuple(Literal(text.removeprefix("!"), text[0] != "!") for text in guard)
        added = Transition(len(machine.transitions), event, source, dest, literals)
        return replace(machine, transitions=(*machine.transitions, added))

    return change


def without(*numbers: int) -> Change:
    """The machine without these rows."""
    return lambda machine: replace(
        machine, transitions=tuple(t for t in machine.transitions if t.row not in numbers)
    )


def also(**tables: State | Event | Guard | Effect) -> Change:
    """The machine with one more declaration in a table."""
    return lambda machine: replace(
        machine, **{name: {**getattr(machine, name), made.name: made} for name, made in tables.items()}
    )


def flicker(machine: Machine) -> Machine:
    """The machine with a state that can be entered and never ends."""
    machine = also(states=State("flicker", "On and off."))(machine)
    return extra("press", "flicker", "flicker")(row(2, dest="flicker")(machine))


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        pytest.param(
            row(0, dest="onn"),
            [
                'lamp.toml: [[transitions]] #0 (press from off): unknown state "onn"; '
                'mend: declare it under [states] or write "on"'
            ],
            id="an unknown state",
        ),
        pytest.param(
            row(0, event="pres"),
            [
                'lamp.toml: [[transitions]] #0 (pres from off): unknown event "pres"; '
                'mend: declare it under [events] or write "press"'
            ],
            id="an unknown event",
        ),
        pytest.param(
            row(0, guard=(Literal("powerd", True),)),
            [
                'lamp.toml: [[transitions]] #0 (press from off): unknown guard "powerd"; '
                'mend: declare it under [guards] or write "powered"'
            ],
            id="an unknown guard",
        ),
        pytest.param(
            row(0, effects=("explode",)),
            [
                'lamp.toml: [[transitions]] #0 (press from off): unknown effect "explode"; '
                "mend: declare it under [effects]"
            ],
            id="an unknown effect",
        ),
        pytest.param(
            lambda machine: replace(machine, initial="of"),
            ['lamp.toml: initial: unknown state "of"; mend: declare it under [states] or write "off"'],
            id="an unknown initial state",
        ),
        pytest.param(
            also(states=State("half lit", "Dim.")),
            [
                'lamp.toml: [states]: state "half lit" is not an identifier; '
                "mend: use letters, digits and underscores"
            ],
            id="a name that no method could bear",
        ),
        pytest.param(
            extra("press", "off", "off", "powered"),
            [
                "lamp.toml: [[transitions]] #5 (press from off): duplicate of row #0; "
                "mend: remove one of the two"
            ],
            id="a duplicate transition",
        ),
        pytest.param(
            extra("press", "on", "on", "powered"),
            [
                "lamp.toml: [[transitions]] #5 (press from on): ambiguous with row #2: "
                'no guard, and "powered"; mend: '
                "let one guard appear plain in one row and negated in the other"
            ],
            id="ambiguous guards",
        ),
        pytest.param(
            row(0, guard=(Literal("powered", True), Literal("powered", False))),
            [
                'lamp.toml: [[transitions]] #0 (press from off): guard "powered" contradicts "!powered"; '
                "mend: keep one of them"
            ],
            id="a contradictory guard",
        ),
        pytest.param(
            row(0, guard=(Literal("powered", True), Literal("powered", True))),
            [
                'lamp.toml: [[transitions]] #0 (press from off): guard "powered" is repeated; '
                "mend: keep one of them"
            ],
            id="a repeated guard",
        ),
        pytest.param(
            also(states=State("dim", "Unreachable.", terminal=True)),
            ['lamp.toml: [states.dim]: no way leads here from "off"; mend: add a transition or remove it'],
            id="an unreachable state",
        ),
        pytest.param(
            flicker,
            [
                "lamp.toml: [states.flicker]: a trap: no way leads to a terminal state; "
                "mend: add a transition or mark it terminal"
            ],
            id="a trap state",
        ),
        pytest.param(
            extra("press", "dead", "off"),
            [
                'lamp.toml: [[transitions]] #5 (press from dead): state "dead" is terminal; '
                "mend: remove the row or the mark"
            ],
            id="a way out of a terminal state",
        ),
        pytest.param(
            also(guards=Guard("dark", "Night.", "fact")),
            ["lamp.toml: [guards.dark]: guard is never used; mend: use it in a transition or remove it"],
            id="an unused guard",
        ),
        pytest.param(
            also(effects=Effect("hum", "Hum.")),
            ["lamp.toml: [effects.hum]: effect is never used; mend: use it in a transition or remove it"],
            id="an unused effect",
        ),
        pytest.param(
            also(events=Event("stare", "Nothing.", "client")),
            ["lamp.toml: [events.stare]: event is never used; mend: use it in a transition or remove it"],
            id="an unused event",
        ),
    ],
)
def test_nonsense_in_a_machine_gives_one_line_with_file_table_and_mend(
    small: Path, change: Change, lines: list[str]
) -> None:
    spec = load_spec(small)
    assert [*map(str, validate(replace(spec, machines={"lamp": change(spec.machines["lamp"])})))] == lines


def test_a_contradictory_guard_is_not_also_called_a_duplicate(small: Path) -> None:
    spec = load_spec(small)
    lamp = row(1, guard=(Literal("powered", False), Literal("powered", True)))(spec.machines["lamp"])
    (problem,) = validate(replace(spec, machines={"lamp": lamp}))
    assert "contradicts" in problem.reason


def test_a_state_of_an_endless_machine_needs_a_way_out_but_no_terminal_state(small: Path) -> None:
    spec = load_spec(small)
    endless = also(states=State("dead", "Burnt out."))(spec.machines["lamp"])
    (problem,) = validate(replace(spec, machines={"lamp": endless}))
    assert str(problem) == (
        "lamp.toml: [states.dead]: a trap: no way leads out; mend: add a transition or mark it terminal"
    )
    replaced = extra("press", "dead", "off")(endless)
    assert validate(replace(spec, machines={"lamp": replaced})) == []


def test_a_missing_event_of_a_witness_is_named_once(small: Path) -> None:
    spec = load_spec(small)
    lamp = without(3, 4)(spec.machines["lamp"])
    lamp = replace(
        lamp,
        events={"press": lamp.events["press"]},
        states={n: s for n, s in lamp.states.items() if n != "dead"},
    )
    assert [*map(str, validate(replace(spec, machines={"lamp": lamp})))] == [
        'invariants.toml: [[invariants]] #0 (dark-when-dead): unknown event "burn"; '
        "mend: declare it under [events]"
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"machine": "lmp"}, 'unknown machine "lmp"; mend: add its file or write "lamp"'),
        ({"event": "bern"}, 'unknown event "bern"; mend: declare it under [events] or write "burn"'),
        ({"name": "fde"}, 'unknown effect "fde"; mend: declare it under [effects] or write "fade"'),
        ({"source": "offf"}, 'unknown state "offf"; mend: declare it under [states] or write "off"'),
        (
            {"target": "guard", "name": "!power"},
            'unknown guard "power"; mend: declare it under [guards] or write "powered"',
        ),
        (
            {"name": "shine"},
            'the witness fails: "drop effect shine of lamp.burn" matches nothing; '
            "mend: name a change of what the spec says",
        ),
        (
            {"action": "set", "target": "intervl", "value": 1},
            'the witness fails: unknown constant "intervl"; did you mean "interval"?; '
            "mend: name a change of what the spec says",
        ),
    ],
)
def test_a_witness_that_names_nothing_is_a_problem(small: Path, changes: dict[str, str], line: str) -> None:
    spec = load_spec(small)
    dark = spec.invariants["dark-when-dead"]
    dark = replace(dark, witness=replace(dark.witness, **changes))  # type: ignore[arg-type]
    assert [*map(str, validate(replace(spec, invariants={dark.id: dark})))] == [
        f"invariants.toml: [[invariants]] #0 (dark-when-dead): {line}"
    ]


def test_an_invariant_of_an_unknown_machine_is_a_problem(small: Path) -> None:
    spec = load_spec(small)
    dark = replace(spec.invariants["dark-when-dead"], machines=("lamp", "sun"))
    assert [*map(str, validate(replace(spec, invariants={dark.id: dark})))] == [
        'invariants.toml: [[invariants]] #0 (dark-when-dead): unknown machine "sun"; mend: add its file'
    ]


def test_two_invariants_with_one_number_are_a_problem(small: Path) -> None:
    spec = load_spec(small)
    dark = spec.invariants["dark-when-dead"]
    both = {dark.id: dark, "again": replace(dark, id="again")}
    (problem,) = validate(replace(spec, invariants=both))
    assert problem.reason == 'number 1 is taken by "dark-when-dead"'


def with_profile(spec: Spec, **changes: object) -> Spec:
    profile = replace(spec.profiles["recommended"], **changes)  # type: ignore[arg-type]
    return replace(spec, profiles={"recommended": profile})


def test_a_finding_about_an_unknown_invariant_is_a_problem(small: Path) -> None:
    spec = with_profile(load_spec(small), findings=(Finding("dark-when-daed", (), "?"),))
    assert [*map(str, validate(spec))] == [
        'profiles/recommended.toml: [[findings]] #0: unknown invariant "dark-when-daed"; '
        'mend: write "dark-when-dead"'
    ]


def test_a_constant_of_the_wrong_type_is_a_problem_however_it_got_there(small: Path) -> None:
    spec = load_spec(small)
    wrong = replace(spec.profiles["recommended"].constants, pin_fraction=2.0)
    assert [*map(str, validate(with_profile(spec, constants=wrong)))] == [
        "profiles/recommended.toml: [constants]: pin_fraction is a share between 0 and 1, not 2.0; "
        "mend: correct pin_fraction"
    ]


def test_a_spec_with_other_constants_is_still_valid(small: Path) -> None:
    assert validate(set_constant(load_spec(small), "recommended", interval=0, pacing="clock")) == []
