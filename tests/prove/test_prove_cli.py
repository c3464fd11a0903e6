"""`prove` and `mutate` as commands: exit codes, one line for bad input, JSON on demand."""

import json

import pytest
import typer
from typer.testing import CliRunner, Result

from hicache_fsm.cli.mutate_commands import mutate
from hicache_fsm.cli.prove_commands import prove

pytest.importorskip("z3")


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(prove)
    app.command()(mutate)
    return CliRunner().invoke(app, arguments)


def test_a_proof_exits_0_and_says_what_it_leans_on() -> None:
    result = run("prove", "headroom")
    assert result.exit_code == 0, result.output
    assert "pin-cap" in result.stdout


def test_a_finding_is_shown_with_its_step_and_passes() -> None:
    result = run("prove", "headroom", "--profile", "seed")
    assert result.exit_code == 0
    assert "upstream finding" in result.stdout
    assert "breaks  headroom" in result.stdout


def test_json_has_the_two_states_and_the_step() -> None:
    result = run("prove", "asked-armed", "--profile", "seed", "--json")
    shown = json.loads(result.stdout)["invariants"]["asked-armed"]["counterexample"]
    assert shown["before"] != shown["after"]
    assert shown["action"].startswith("enqueue")


def test_running_out_of_time_exits_3() -> None:
    result = run("prove", "pin-owned", "--timeout", "0.001")
    assert result.exit_code == 3
    assert "undetermined" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("prove", "liveness"),
        ("prove", "--profile", "sed"),
        ("mutate", "--only", "pim"),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
