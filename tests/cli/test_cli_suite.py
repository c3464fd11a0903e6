"""`scenarios`, `fuzz` and the pytest options as a stranger meets them: what is printed, and what bad input gets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hicache_fsm.cli.app import app
from hicache_fsm.suite.scenario import shipped

LONGEST = max((path for path in shipped().glob("found-*.toml")), key=lambda path: len(path.stem))
BELIEVED = shipped() / "lead-a-failed-write-is-believed.toml"


def run(*arguments: object, columns: int = 80) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": str(columns)})


def test_the_longest_id_is_whole_on_a_narrow_terminal() -> None:
    assert f"pass  {LONGEST.stem}" in run("scenarios", LONGEST).stdout


def test_a_condition_that_fails_is_told_once_with_what_was_read_instead() -> None:
    result = run("scenarios", BELIEVED, "--profile", "sglang-0.5.23")
    assert result.exit_code == 1
    (line,) = [line for line in result.stdout.splitlines() if "at step" in line]
    assert line.count("believed(a) and") == 1
    assert line.endswith("believed(a) is True, believed(b) is True")


def test_failures_that_are_listed_are_said_to_be() -> None:
    result = run("scenarios", BELIEVED, "--profile", "sglang-0.5.23", "--expected")
    assert result.exit_code == 0
    assert "1 scenario: 1 fail\n" in result.stdout
    assert "each came out as" in result.stdout


@pytest.mark.parametrize("command", ["scenarios", "fuzz"])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere", "use runtime, model"),
        ("json:dumps", "missing 1 required positional argument"),
        ("pathlib:Path", "has no `build`"),
    ],
)
def test_a_target_that_is_none_is_one_line(command: str, target: str, said: str) -> None:
    result = run(command, "--target", target)
    assert result.exit_code == 2
    (line,) = result.stderr.strip().splitlines()
    assert target in line
    assert said in line


def test_a_folder_that_cannot_be_is_refused_before_the_campaign(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    result = run("fuzz", "--minutes", "60", "--out", taken)
    assert result.exit_code == 2
    assert result.stderr.strip() == f"{taken}: File exists"


def test_a_finding_comes_with_the_command_that_shows_it_again(tmp_path: Path) -> None:
    result = run("fuzz", "--minutes", "0.02", "--profile", "sglang-0.5.23", "--out", tmp_path)
    assert result.exit_code == 1
    (first, *_) = [line for line in result.stdout.splitlines() if line.startswith("  hicache-fsm scenarios")]
    assert first.endswith("--target runtime --profile sglang-0.5.23")
    assert run(*first.split()[1:]).exit_code == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hicache-target", "nowhere:make"], 'no target "nowhere:make"'),
        (
            ["--hicache-target", "runtime", "--hicache-scenarios", "nowhere"],
            "--hicache-scenarios nowhere: not found",
        ),
    ],
)
def test_pytest_tells_a_wrong_option_once_and_runs_nothing(
    options: list[str], said: str, tmp_path: Path
) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == pytest.ExitCode.USAGE_ERROR
    assert (told.stdout + told.stderr).count(said) == 1
