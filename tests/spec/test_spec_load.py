import pickle
from pathlib import Path

import pytest

from hicache_fsm.spec import Literal, SpecError, load_spec


def problems(path: Path) -> list[str]:
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    return str(raised.value).splitlines()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_real_spec_loads_without_a_problem() -> None:
    spec = load_spec()
    assert {"prefetch", "pin", "node", "belief", "operation"} <= spec.machines.keys()
    assert {"seed", "sglang-0.5.23", "recommended"} <= spec.profiles.keys()
    assert len(spec.invariants) >= 17


def test_a_loaded_spec_can_be_sent_to_another_process() -> None:
    spec = load_spec()
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_rows_are_numbered_in_file_order_with_one_row_per_source(small: Path) -> None:
    rows = load_spec(small).machines["lamp"].transitions
    assert [(row.row, row.event, row.source, row.dest) for row in rows] == [
        (0, "press", "off", "on"),
        (1, "press", "off", "off"),
        (2, "press", "on", "off"),
        (3, "burn", "off", "dead"),
        (4, "burn", "on", "dead"),
    ]


def test_guards_effects_and_upstream_fields_are_read(small: Path) -> None:
    lamp = load_spec(small).machines["lamp"]
    assert lamp.transitions[1].guard == (Literal("powered", False),)
    assert lamp.transitions[3].effects == ("fade",)
    assert lamp.states["off"].upstream == {"0.5.23": ("lamp in no dictionary",)}
    assert lamp.terminal == {"dead"}


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        pytest.param(
            "lamp.toml",
            'dest = "on"\n',
            'dest = "on\n',
            "lamp.toml: line 35, column 11: not TOML: Illegal character '\\n'; "
            "mend: correct the syntax there",
            id="a syntax error",
        ),
        pytest.param(
            "lamp.toml",
            'machine = "lamp"',
            'machine = "torch"',
            'lamp.toml: top level: the file describes machine "torch"; '
            'mend: write machine = "lamp" or rename the file',
            id="a machine in another one's file",
        ),
        pytest.param(
            "lamp.toml",
            'source = ["on"]',
            'source = "on"',
            "lamp.toml: [[transitions]] #2 (press from on): source is 'on', not a list of strings; "
            "mend: write source as a list of strings",
            id="a source that is no list",
        ),
        pytest.param(
            "lamp.toml",
            'guard = ["powered"]',
            'gaurd = ["powered"]',
            'lamp.toml: [[transitions]] #0 (press from off): unknown key "gaurd"; mend: write "guard"',
            id="a misspelt key",
        ),
        pytest.param(
            "lamp.toml",
            'dest = "on"\n',
            "",
            "lamp.toml: [[transitions]] #0 (press from off): dest is missing; mend: add dest, a string",
            id="a missing key",
        ),
        pytest.param(
            "lamp.toml",
            'dest = "on"\n',
            'dest = ""\n',
            "lamp.toml: [[transitions]] #0 (press from off): dest is empty; mend: give dest a value",
            id="an empty destination",
        ),
        pytest.param(
            "lamp.toml",
            'kind = "fact"',
            'kind = "rumour"',
            'lamp.toml: [guards.powered]: unknown kind "rumour"; mend: use one of fact, context, profile',
            id="an unknown kind of guard",
        ),
        pytest.param(
            "lamp.toml",
            '[effects.shine]\nabout = "Give light."\n[effects.fade]\nabout = "Stop giving light."\n',
            '[effects]\nfade = "Stop giving light."\nshine = { about = "Give light." }\n',
            "lamp.toml: top level: effects.fade is 'Stop giving light.', not a table; "
            "mend: write effects.fade as a table",
            id="a value in place of a table",
        ),
        pytest.param(
            "lamp.toml",
            "terminal = true",
            "terminal = 1",
            "lamp.toml: [states.dead]: terminal is 1, not true or false; "
            "mend: write terminal as true or false",
            id="a number for a truth value",
        ),
        pytest.param(
            "lamp.toml",
            'key = ["room"]',
            "key = [1]",
            "lamp.toml: top level: key is not a list of strings; mend: quote every item",
            id="a number among strings",
        ),
        pytest.param(
            "profiles/recommended.toml",
            "interval = 8",
            "interval = true",
            "profiles/recommended.toml: [constants]: interval is an integer, not True; "
            "mend: correct interval",
            id="a constant of the wrong type",
        ),
        pytest.param(
            "profiles/recommended.toml",
            "interval = 8",
            "interval = -1",
            "profiles/recommended.toml: [constants]: interval counts from 0 up, not -1; "
            "mend: correct interval",
            id="a negative constant",
        ),
        pytest.param(
            "profiles/recommended.toml",
            'pacing = "pass"',
            'pacing = "whim"',
            "profiles/recommended.toml: [constants]: pacing is one of pass, clock, not 'whim'; "
            "mend: correct pacing",
            id="a constant outside its choices",
        ),
        pytest.param(
            "profiles/recommended.toml",
            "interval = 8\n",
            "",
            "profiles/recommended.toml: [constants]: interval is not set; mend: add interval = ...",
            id="a constant that is not set",
        ),
        pytest.param(
            "profiles/recommended.toml",
            "interval = 8\n",
            "interval = 8\nintervall = 8\n",
            'profiles/recommended.toml: [constants]: unknown key "intervall"; mend: write "interval"',
            id="a constant that nobody reads",
        ),
        pytest.param(
            "invariants.toml",
            'witness = { drop = "effect", machine = "lamp", event = "burn", name = "fade" }',
            "witness = {}",
            "invariants.toml: [[invariants]] #0 (dark-when-dead) witness: a witness makes one change; "
            "mend: give it one of drop, swap or set",
            id="a witness that changes nothing",
        ),
        pytest.param(
            "invariants.toml",
            "number = 1\n",
            'number = "1"\n',
            "invariants.toml: [[invariants]] #0 (dark-when-dead): number is '1', not an integer; "
            "mend: write number as an integer",
            id="a number in quotes",
        ),
    ],
)
def test_a_malformed_file_gives_one_line_with_file_table_and_mend(
    small: Path, file: str, old: str, new: str, line: str
) -> None:
    edit(small / file, old, new)
    assert problems(small) == [line]


def test_a_binary_file_gives_one_line(small: Path) -> None:
    (small / "lamp.toml").write_bytes(b"\x80\x00\xff")
    assert problems(small) == ["lamp.toml: byte 0: not UTF-8 text; mend: save the file as UTF-8 text"]


def test_a_missing_file_gives_one_line(small: Path) -> None:
    (small / "invariants.toml").unlink()
    assert problems(small) == [
        "invariants.toml: file: No such file or directory; mend: provide the file, readable"
    ]


def test_a_missing_directory_gives_one_line(tmp_path: Path) -> None:
    path = tmp_path / "nowhere"
    assert problems(path) == [f"{path}: directory: not found; mend: name the spec's directory"]


def test_a_directory_without_machines_or_profiles_says_so(small: Path) -> None:
    (small / "lamp.toml").unlink()
    (small / "profiles" / "recommended.toml").unlink()
    assert problems(small) == [
        f"{small}: directory: no machine; mend: add one TOML file per machine",
        f"{small / 'profiles'}: directory: no profile; mend: add one TOML file per profile",
    ]


def test_the_problems_of_all_files_are_raised_together(small: Path) -> None:
    edit(small / "lamp.toml", 'guard = ["powered"]', 'guard = ["pwered"]')
    edit(small / "profiles" / "recommended.toml", "interval = 8", "interval = 'often'")
    (small / "invariants.toml").write_text("[")
    assert [line.split(":")[0] for line in problems(small)] == [
        "invariants.toml",
        "profiles/recommended.toml",
        "lamp.toml",
    ]
