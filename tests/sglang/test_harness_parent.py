"""Starting the child: what is asked of it, and what a wrong wish answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache_fsm.sglang import record, run
from hicache_fsm.sglang.settings import EngineSettings, IoLatency


def test_a_missing_harness_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(record.HarnessMissingError, match=r"env is missing or incomplete: run `make sglang`"):
        record.record("0.5.23", None, root=tmp_path)


def test_a_half_made_harness_is_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch()
    with pytest.raises(record.HarnessMissingError):
        record.require("0.5.19", tmp_path)


def test_an_unknown_version_is_refused_by_parent_and_child_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = "unknown SGLang version 9.9.9: this harness knows 0.5.19, 0.5.23\n"
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
