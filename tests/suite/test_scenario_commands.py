"""`hicache-fsm scenarios`: its table, its JSON, its exit codes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hicache_fsm.cli.app import app
from hicache_fsm.suite.scenario import shipped

LATE = str(shipped() / "a-late-answer-changes-only-the-attempt-that-asked.toml")
DOOR = str(shipped() / "the-over-capacity-door-lets-go.toml")
SPLIT = str(shipped() / "a-pin-is-on-the-base-of-today.toml")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["scenarios", *arguments], env={"COLUMNS": "200"})


def test_all_pass() -> None:
    result = invoke(LATE, DOOR)
    assert result.exit_code == 0
    assert "runtime/recommended: 2 scenarios: 2 pass" in result.stdout


def test_one_that_fails_is_told_with_its_step() -> None:
    result = invoke(DOOR, "--profile", "seed")
    assert result.exit_code == 1
    assert "fail at step 5: no-residue" in result.stdout
    assert "abandon r" in result.stdout


def test_one_that_is_inexpressible_is_no_pass() -> None:
    result = invoke(SPLIT, "--target", "model")
    assert result.exit_code == 3
    assert "inexpressible at step 2" in result.stdout


def test_what_is_listed_to_fail_holds_the_list() -> None:
    assert invoke(DOOR, LATE, "--profile", "seed", "--expected").exit_code == 0


def test_each_step_can_be_shown() -> None:
    result = invoke(LATE, "--verbose")
    assert "r: probing -> missed" in result.stdout
    assert "holds one-in-flight" in result.stdout


def test_the_runs_as_json() -> None:
    result = invoke(DOOR, "--profile", "seed", "--json")
    (run,) = json.loads(result.stdout)
    assert (run["outcome"], run["step"], run["what"]) == ("fail", 5, "no-residue")
    assert run["steps"][-1]["findings"]


def test_the_list_is_written_beside_the_scenarios(tmp_path: Path) -> None:
    story = tmp_path / Path(DOOR).name
    story.write_text(Path(DOOR).read_text(encoding="utf-8"), encoding="utf-8")
    assert invoke(str(tmp_path), "--expected").exit_code == 1
    assert invoke(str(tmp_path), "--record").exit_code == 0
    assert invoke(str(tmp_path), "--expected").exit_code == 0
    assert "runtime" in (tmp_path / "expected.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.toml"], "nowhere.toml: not found"),
        ([DOOR, "--target", "nobody"], 'no target "nobody"'),
        ([DOOR, "--target", "sglang-1"], "no target for SGLang 1"),
        ([DOOR, "--profile", "nobody"], "unknown profile nobody"),
    ],
)
def test_bad_input_gets_one_line(arguments: list[str], says: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path) -> None:
    story = tmp_path / "bad.toml"
    story.write_text(
        'id = "bad"\nabout = "x"\nupstream = []\nsteps = """\nenk r\n"""\n[world]\nprompts = { r = "a" }\n'
    )
    result = invoke(str(story))
    assert result.exit_code == 2
    assert f'{story}:5: "enk" is no event: did you mean "enq"?' in result.stderr
