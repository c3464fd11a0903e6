"""`check` with bounds and `explain --profile`: exit codes, one line for bad input, JSON on demand."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from hicache_fsm.cli.check_commands import check, explain


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(check)
    app.command()(explain)
    return CliRunner().invoke(app, arguments)


def test_asked_for_bounds_are_told_searched_and_hold() -> None:
    result = run("check", "--ranks", "2", "--interval", "8")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ranks under recommended: interval 8, max attempts 2, ranks 2")
    assert "expected: 39 states" in lines[1]
    assert "found: 39 states" in lines[2]


def test_every_profile_that_is_named_is_searched() -> None:
    result = run("check", "--nodes", "2", "--profile", "seed", "--profile", "recommended", "--json")
    assert [each["profile"] for each in json.loads(result.stdout)["searches"]] == ["seed", "recommended"]


def test_json_has_the_bounds_the_size_and_the_verdicts() -> None:
    result = run("check", "--nodes", "2", "--json")
    (search,) = json.loads(result.stdout)["searches"]
    assert search["bounds"]["nodes"] == 2
    assert search["found"]["distinct"] == search["expected"]["states"] == 47
    assert {each["verdict"] for each in search["invariants"].values()} == {"held"}


def test_an_upstream_finding_is_explained_with_what_each_step_is_for() -> None:
    result = run("check", "--requests", "1", "--profile", "sglang-0.5.23")
    assert result.exit_code == 0, result.output
    assert "upstream finding (#39318)" in result.stdout
    assert "matters for" in result.stdout
    assert "what stands for these states in SGLang 0.5.23" in result.stdout


def test_what_does_not_fit_exits_3() -> None:
    result = run("check", "--requests", "2", "--max-memory", "0.0001")
    assert result.exit_code == 3
    assert "refused" in result.stdout


def test_what_happens_eventually_is_shown() -> None:
    pytest.importorskip("scipy")
    result = run("check", "--ranks", "2", "--fair")
    assert "eventually every rank's prefetch settles: holds" in result.stdout


def test_explain_shows_how_a_profile_breaks_an_invariant() -> None:
    result = run("explain", "asked-armed", "--profile", "seed", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert (found["invariant"], found["upstream"]) == ("asked-armed", ["#40011", "#40042"])
    assert all(step["matters"] for step in found["steps"])


def test_explain_says_so_where_nothing_breaks_it() -> None:
    result = run("explain", "lockstep", "--profile", "recommended")
    assert (result.exit_code, result.stdout.strip()) == (
        0,
        "lockstep holds under recommended within the default bounds",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "--requests", "0"),
        ("check", "--requests", "2", "--anchors", "1,x"),
        ("check", "--requests", "2", "--spill", "/no/such/folder"),
        ("check", "--requests", "2", "--profile", "sed"),
        ("check", "--system", "ranks", "--requests", "2"),
        ("check", "--engine", "tlc"),
        ("check", "--fair"),
        ("explain", "--profile", "seed"),
        ("explain", "headroom", "--profile", "sed"),
    ],
)
def test_bad_input_gets_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert len(result.stderr.strip().splitlines()) == 1


def test_an_engine_that_is_missing_is_told_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = run("check", "--requests", "2", "--engine", "spin")
    assert result.exit_code == 2
    assert result.stderr.startswith("spin and cc not found: apt-get install spin gcc")


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert run("check", "--requests", "2", "--spill", str(tmp_path / "file")).exit_code == 2
