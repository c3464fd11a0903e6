"""`hicache-fsm ranks`: per-rank event logs compared offline."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hicache_fsm.check import shipped_logs
from hicache_fsm.cli.app import app

LOG = shipped_logs()[-1]
Lines = list[dict[str, Any]]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ranks", *map(str, arguments)])


def of_rank(folder: Path, rank: int, ranks: int = 2, change: Callable[[Lines], None] | None = None) -> Path:
    """The shipped log of a real SGLang, as if it were one rank's, with changes."""
    lines = [json.loads(line) for line in gzip.decompress(LOG.read_bytes()).splitlines()]
    lines[0] |= {"rank": rank, "ranks": ranks}
    if change is not None:
        change(lines)
    path = folder / f"rank{rank}.jsonl"
    path.write_text("".join(f"{json.dumps(line | {'seq': seq})}\n" for seq, line in enumerate(lines)))
    return path


def event(lines: Lines, machine: str, name: str, number: int = 20) -> int:
    """The place of an event, counted among its like."""
    return [
        at for at, line in enumerate(lines) if (line.get("machine"), line.get("event")) == (machine, name)
    ][number]


def changed(machine: str, name: str, **members: object) -> Callable[[Lines], None]:
    return lambda lines: lines[event(lines, machine, name)].update(members)


def one_line(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    return str(line)


def test_equal_logs_exit_0_and_say_how_much_was_compared(tmp_path: Path) -> None:
    result = run(of_rank(tmp_path, 0), of_rank(tmp_path, 1))
    assert result.exit_code == 0
    assert result.stdout.startswith("ranks 0, 1 decided alike: 1,")


@pytest.mark.parametrize(
    ("machine", "name", "members"),
    [
        ("prefetch", "hit", {"tokens": 7}),
        ("prefetch", "hit", {"facts": {"room": True}}),
        ("prefetch", "miss", {"why": "terminated"}),
        ("prefetch", "issue", {"facts": {"asks": False}}),
        ("prefetch", "admit", {"rid": "another"}),
        ("pin", "pin", {"why": "cap_busy"}),
        ("belief", "write", {"pages": 7}),
        ("belief", "deny", {"pages": 7}),
    ],
)
def test_one_changed_decision_exits_1_and_is_named_by_file_and_line(
    tmp_path: Path, machine: str, name: str, members: dict[str, object]
) -> None:
    ours, theirs = of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=changed(machine, name, **members))
    result = run(theirs, ours)
    assert result.exit_code == 1
    lines = [json.loads(line) for line in ours.read_text().splitlines()]
    line = event(lines, machine, name) + 1
    assert f"ranks differ first in pass {lines[line - 1]['pass']}" in result.stdout
    assert f"({ours}:{line})" in result.stdout
    assert f"({theirs}:{line})" in result.stdout


def test_a_decision_taken_a_pass_later_is_a_difference(tmp_path: Path) -> None:
    def later(lines: Lines) -> None:
        at = event(lines, "prefetch", "miss")
        for line in lines[at:]:
            if "pass" in line:
                line["pass"] += 1

    result = run(of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=later))
    assert result.exit_code == 1
    assert "nothing more in this pass" in result.stdout


def test_what_each_rank_sees_in_its_own_cache_is_no_decision(tmp_path: Path) -> None:
    def own(lines: Lines) -> None:
        lines[event(lines, "node", "evict")]["tokens"] = 1
        lines[event(lines, "belief", "stored")]["event"] = "write_failed"
        for line in lines:
            line.pop("seen", None)

    assert run(of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=own)).exit_code == 0


def test_the_odd_one_of_three_is_named_and_a_missing_log_is_told(tmp_path: Path) -> None:
    logs = [
        of_rank(tmp_path, rank, 4, changed("prefetch", "hit", tokens=7) if rank == 1 else None)
        for rank in (0, 1, 3)
    ]
    result = run(*logs)
    assert result.exit_code == 1
    assert "not with the majority: rank 1" in result.stdout
    assert "for want of a log: rank 2" in result.stdout


def test_json_has_the_difference_with_its_places(tmp_path: Path) -> None:
    logs = of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=changed("prefetch", "hit", tokens=7))
    told = json.loads(run(*logs, "--json").stdout)
    assert told["equal"] is False
    assert told["difference"]["ranks"]["1"]["tokens"] == 7
    assert told["difference"]["ranks"]["1"]["facts"] == {"room": False}
    assert told["difference"]["places"]["1"].startswith(str(logs[1]))


def test_a_log_of_a_rank_that_died_is_compared_up_to_its_last_whole_pass(tmp_path: Path) -> None:
    def dies(lines: Lines) -> None:
        del lines[event(lines, "prefetch", "hit") :]

    result = run(of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=dies))
    assert result.exit_code == 0
    assert "rank1.jsonl has no trailer: compared up to its last whole pass" in result.stdout


def test_a_closed_log_that_ends_early_is_a_difference(tmp_path: Path) -> None:
    def stops(lines: Lines) -> None:
        del lines[event(lines, "prefetch", "hit") : -1]

    assert run(of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=stops)).exit_code == 1


def test_a_truncated_log_exits_2_unless_it_is_allowed(tmp_path: Path) -> None:
    ours, theirs = of_rank(tmp_path, 0), of_rank(tmp_path, 1)
    theirs.write_text(theirs.read_text()[:-20])
    assert "truncated" in one_line(run(ours, theirs))
    assert run(ours, theirs, "--allow-truncated").exit_code == 0


def test_one_log_alone_exits_2(tmp_path: Path) -> None:
    assert "name the logs of at least two ranks" in one_line(run(of_rank(tmp_path, 0)))


def test_two_logs_of_one_rank_exit_2(tmp_path: Path) -> None:
    log = of_rank(tmp_path, 0)
    assert "name one log per rank" in one_line(run(log, log))


@pytest.mark.parametrize("member", ["profile", "page_size", "constants", "version"])
def test_logs_of_different_runs_exit_2(tmp_path: Path, member: str) -> None:
    def other(lines: Lines) -> None:
        lines[0][member] = {"profile": "seed", "page_size": 64, "constants": {"interval": 1}, "version": "1"}[
            member
        ]

    told = one_line(run(of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=other)))
    assert member in told
    assert "name logs of one run" in told


def test_a_header_whose_ranks_are_no_numbers_exits_2(tmp_path: Path) -> None:
    def wrong(lines: Lines) -> None:
        lines[0]["rank"] = "first"

    assert "not whole numbers" in one_line(run(of_rank(tmp_path, 0), of_rank(tmp_path, 1, change=wrong)))


def test_a_missing_file_exits_2(tmp_path: Path) -> None:
    assert "cannot be read" in one_line(run(of_rank(tmp_path, 0), tmp_path / "none.jsonl"))
