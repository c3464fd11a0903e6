"""The commands: tables for people, one JSON document for programs, exit codes for both."""

import json

import pytest
import typer
from typer.testing import CliRunner

from hicache_fsm.cli.conform_commands import conform
from hicache_fsm.cli.tlc_commands import exit_of, tlc
from hicache_fsm.tlc.manifest import Entry
from hicache_fsm.tlc.suite import Result

ENTRY = Entry("M", "M.cfg", "node", None, "success", None, 16, 5, None, (), "small")


@pytest.fixture
def app() -> typer.Typer:
    commands = typer.Typer()
    commands.command()(conform)
    commands.command()(tlc)
    return commands


def test_conform_compares_and_says_so(app: typer.Typer) -> None:
    found = CliRunner().invoke(app, ["conform", "node.two", "--no-tlc"])
    assert found.exit_code == 0, found.output
    assert "equal" in found.output


def test_conform_prints_one_json_document(app: typer.Typer) -> None:
    found = CliRunner().invoke(app, ["conform", "node.two", "--no-tlc", "--json"])
    (report,) = json.loads(found.stdout)
    sides = report["comparisons"][0]["sides"]
    assert {name: side["distinct"] for name, side in sides.items()} == {"model": 47, "runtime": 47}


def test_an_unknown_configuration_exits_2(app: typer.Typer) -> None:
    found = CliRunner().invoke(app, ["conform", "nope", "--no-tlc"])
    assert found.exit_code == 2


@pytest.mark.parametrize("arguments", [["nope"], ["--size", "huge"], ["MCNode", "--java", "/nowhere/java"]])
def test_what_tlc_cannot_run_exits_2(app: typer.Typer, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["tlc", *arguments]).exit_code == 2


def test_tlc_without_models_lists_them(app: typer.Typer) -> None:
    found = CliRunner().invoke(app, ["tlc", "--json"])
    assert found.exit_code == 0
    assert {"MCNode", "MCAdmission"} <= {each["model"] for each in json.loads(found.stdout)}


def test_no_verdict_is_never_a_pass() -> None:
    assert exit_of([Result(ENTRY, None, ("the JVM was killed by SIGKILL",))]) == 3
