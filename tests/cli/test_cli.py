"""The commands as a stranger meets them: exit codes, one line for bad input, JSON on demand."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hicache_fsm.check import shipped_logs
from hicache_fsm.cli import record_commands
from hicache_fsm.cli.app import app
from hicache_fsm.sglang import record as recording
from hicache_fsm.spec import spec_dir

LOG = shipped_logs()[-1]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def plain(path: Path) -> Path:
    """The shipped log, unpacked."""
    path.write_bytes(gzip.decompress(LOG.read_bytes()))
    return path


def broken_spec(tmp_path: Path, file: str, old: str, new: str) -> Path:
    folder = tmp_path / "spec"
    shutil.copytree(spec_dir(), folder)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    return folder


def one_line(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_replay_of_a_real_log_holds() -> None:
    result = run("replay", LOG)
    assert result.exit_code == 0
    assert "verdict: holds" in result.stdout


def test_replay_prints_json_with_counts_and_violations() -> None:
    (verdict,) = json.loads(run("replay", LOG, "--json").stdout)
    assert verdict["holds"] is True
    assert verdict["counts"]["retries"] > 0


def test_replay_of_a_corrupted_log_exits_1_with_line_rule_and_history(tmp_path: Path) -> None:
    path = plain(tmp_path / "log.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if '"event":"hit"' in line)
    lines[place] = lines[place].replace('"event":"hit"', '"event":"admit"')
    path.write_text("".join(lines))
    result = run("replay", path)
    assert result.exit_code == 1
    assert f"legal {path}:{place + 1}: `admit` is not legal" in result.stdout
    assert "enqueue: -> queued" in result.stdout


def test_a_truncated_log_is_one_line_and_can_be_judged_on_demand(tmp_path: Path) -> None:
    path = plain(tmp_path / "log.jsonl")
    path.write_bytes(path.read_bytes()[:5000])
    assert "truncated: the last line is not whole; --allow-truncated" in one_line(run("replay", path))
    result = run("replay", path, "--allow-truncated")
    assert result.exit_code == 0
    assert "no trailer" in result.stdout


def test_a_truncated_archive_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(LOG.read_bytes()[:3000])
    assert "truncated" in one_line(run("replay", path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x7fELF\0\0", "binary"),
        (b"", "empty"),
        (b'{"seq":0,"kind":"header","schema":99,"profile":"seed"}\n', "schema 99"),
        (b'{"seq":1,"pass":0,"machine":"prefetch","event":"issue"}\n', "expected 0"),
        (b'{"seq":0,"kind":"header","schema":1,"profile":"nobody\'s"}\n', "unknown profile"),
    ],
)
def test_a_file_that_is_no_log_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    assert said in one_line(run("replay", path))


def test_a_lost_line_is_one_line_with_its_place(tmp_path: Path) -> None:
    path = plain(tmp_path / "log.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    del lines[40]
    path.write_text("".join(lines))
    assert one_line(run("replay", path)).startswith(f"{path}:41: seq is 41, expected 40")


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("pin.toml", 'dest = "pinned"', 'dest = "pined"', "pined"),
        ("pin.toml", 'guard = ["anchored", "!fits"]', 'guard = ["anchored"]', "ambiguous"),
        ("pin.toml", 'kind = "fact"', 'kind = "fancy"', "fancy"),
        ("profiles/seed.toml", "max_attempts = 4", 'max_attempts = "four"', "max_attempts"),
    ],
)
def test_each_fault_of_a_malformed_spec_is_one_line_with_file_and_mend(
    tmp_path: Path, file: str, old: str, new: str, said: str
) -> None:
    result = run("check", "--spec", broken_spec(tmp_path, file, old, new))
    assert result.exit_code == 2
    for line in result.stderr.strip().splitlines():
        assert Path(file).name in line
        assert said in line
        assert "mend: " in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("diagram", "prefech"), "unknown machine prefech; there are"),
        (("explain", "pased"), "unknown invariant pased; there are"),
        (("check", "--profile", "sead"), "unknown profile sead; there are"),
        (("record", "--sglang", "0.4.9", "--out", "log.jsonl"), "unknown SGLang version 0.4.9"),
        (("replay", "nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
        (("check", "--symmetry"), "go with bounds: name one"),
        (("record", "--sglang", "0.5.23", "--out", "nowhere/log.jsonl"), "there is no folder nowhere"),
        (
            ("record", "--sglang", "0.5.23", "--mode", "strict", "--allow", "pinned"),
            "unknown invariant pinned",
        ),
    ],
)
def test_an_unknown_name_is_one_line_that_lists_the_known_ones(arguments: tuple[str, ...], said: str) -> None:
    assert said in one_line(run(*arguments))


@pytest.mark.parametrize(
    "line", ["python -m run: error: argument --seed: no int", "sglang run: argument --seed: no int"]
)
def test_the_last_line_of_a_run_that_refuses_its_options_is_what_is_told(line: str) -> None:
    refused = recording.REFUSED.match(line)
    assert refused is not None
    assert refused[1] == "argument --seed: no int"


def test_an_engine_that_ended_is_told_in_its_first_line_and_its_log_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"

    def ends(*_: object, **__: object) -> None:
        log.write_text("{}\n")
        raise recording.EngineEndedError("the engine has ended: AssertionError\n  File ...")

    monkeypatch.setattr(record_commands, "record_log", ends)
    result = run("record", "--sglang", "0.5.23", "--out", log)
    assert result.exit_code == 1
    assert result.stdout.startswith("the engine has ended: AssertionError\n")
    assert f"replay --allow-truncated {log}" in result.stdout
    assert json.loads(run("record", "--sglang", "0.5.23", "--out", log, "--json").stdout)["log"] == str(log)


def test_record_without_an_installed_sglang_is_one_line_with_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        recording.record, "__kwdefaults__", {**recording.record.__kwdefaults__, "root": tmp_path}
    )
    assert "make sglang" in one_line(run("record", "--sglang", "0.5.23", "--out", tmp_path / "log.jsonl"))


def test_explain_says_sentence_reason_witness_and_who_breaks_it() -> None:
    text = run("explain", "headroom").stdout
    for part in ("never wedged", "why it should hold", "set headroom_slack to 0", "broken by sglang-0.5.23"):
        assert part in text


def test_diagram_draws_every_state_of_a_machine() -> None:
    text = run("diagram", "prefetch").stdout
    assert text.startswith("stateDiagram-v2")
    assert "probing --> transferring" in text


def test_diagram_prints_a_table_too() -> None:
    assert "| event | from |" in run("diagram", "pin", "--format", "table").stdout
