"""Starting the child: what is asked of it, and what a wrong wish answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hicache_fsm.cli import record_commands
from hicache_fsm.cli.app import app
from hicache_fsm.sglang import record, run
from hicache_fsm.sglang.settings import EngineSettings, IoLatency


def test_a_missing_harness_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(record.HarnessMissingError, match=r"env is missing or incomplete: run `make sglang`"):
        record.record("0.5.23", None, root=tmp_path)


def test_a_version_that_is_not_laid_out_names_the_command_that_lays_out_that_one(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / record.STAMP).touch()
    mend = r"0\.5\.21 is missing or incomplete: run `python -m hicache_fsm\.sglang\.install 0\.5\.21`"
    with pytest.raises(record.HarnessMissingError, match=mend):
        record.require("0.5.21", tmp_path)


def test_a_half_made_harness_is_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch()
    with pytest.raises(record.HarnessMissingError):
        record.require("0.5.19", tmp_path)


def test_an_unknown_version_is_refused_by_parent_and_child_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = "unknown SGLang version 9.9.9: this harness knows 0.5.19, 0.5.20, 0.5.21, 0.5.22, 0.5.23\n"
    assert record.main(["9.9.9", str(tmp_path / "log")]) == 2
    assert capsys.readouterr().err == f"sglang record: {expected}"
    assert run.main(["--version", "9.9.9"]) == 2
    assert capsys.readouterr().err == f"sglang run: {expected}"


def test_a_page_size_that_does_not_divide_the_context_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run.main(["--page-size", "7"]) == 2
    assert capsys.readouterr().err == "sglang run: page size 7 does not divide the context of 512 tokens\n"


def test_stubs_come_before_sglang_and_the_recorder_only_with_a_log(tmp_path: Path) -> None:
    bare = record.child_environment("0.5.23", tmp_path, tmp_path)
    stubs, sglang = bare["PYTHONPATH"].split(":")
    assert (Path(stubs) / "sgl_kernel" / "__init__.py").is_file()
    assert Path(sglang) == tmp_path / "0.5.23"
    assert bare["SGLANG_PLUGINS"] == "none"
    assert "HICACHE_FSM_LOG" not in bare
    recorded = record.child_environment("0.5.23", tmp_path, tmp_path, log=tmp_path / "log")
    assert recorded["SGLANG_PLUGINS"] == "hicache_fsm"
    assert recorded["HICACHE_FSM_LOG"] == str(tmp_path / "log")


def test_settings_survive_their_own_json() -> None:
    for latency in (None, IoLatency(1, 2, 3)):
        settings = EngineSettings(version="0.5.19", mode="cache", page_size=16, latency=latency)
        assert EngineSettings.from_json(settings.to_json()) == settings


@pytest.mark.parametrize(("off", "code"), [(True, 1), (False, 0)])
def test_a_run_in_which_the_plugin_switched_itself_off_is_no_clean_run(
    monkeypatch: pytest.MonkeyPatch, off: bool, code: int
) -> None:
    told = {"mode": "observe", "audits": 0, "faults": {}, "aborted_at": {}, "findings": {}, "repairs": {}}

    def played(*_: object, report: Path, **__: object) -> list[str]:
        report.write_text(json.dumps(told | {"left": [], "off": off}))
        return []

    monkeypatch.setattr(record_commands, "record_log", played)
    result = CliRunner().invoke(app, ["record", "--sglang", "0.5.23", "--mode", "observe"])
    assert result.exit_code == code
    assert ("switched itself off" in result.stdout) is off
