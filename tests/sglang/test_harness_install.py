"""The layout of `.sglang`: what is made, what is left alone, what is refused."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from hicache_fsm.sglang import install

ROOT = Path(install.__file__).parents[2]


@pytest.fixture
def pip_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []

    def pip(_python: Path, *arguments: str, what: str) -> None:
        calls.append(what)
        if "--target" in arguments:
            Path(arguments[arguments.index("--target") + 1]).mkdir(parents=True)

    def create(_builder: object, env: Path) -> None:
        install._site_packages(env).mkdir(parents=True)

    monkeypatch.setattr(install, "_pip", pip)
    monkeypatch.setattr(install.venv.EnvBuilder, "create", create)
    return calls


def test_everything_is_made_once(tmp_path: Path, pip_calls: list[str]) -> None:
    assert install.install(tmp_path) == ["env", "0.5.19", "0.5.23"]
    done = list(pip_calls)
    assert install.install(tmp_path) == []
    assert pip_calls == done


def test_a_version_in_between_is_made_where_it_is_named(
    tmp_path: Path, pip_calls: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    install.install(tmp_path)
    assert install.main(["--dir", str(tmp_path), "0.5.21", "0.5.23"]) == 0
    assert capsys.readouterr().out == f"sglang harness: made 0.5.21 in {tmp_path}\n"
    assert pip_calls[-1] == "sglang==0.5.21"


def test_a_part_whose_install_was_interrupted_is_made_anew(tmp_path: Path, pip_calls: list[str]) -> None:
    install.install(tmp_path)
    (tmp_path / "0.5.19" / install.STAMP).unlink()
    (tmp_path / "0.5.19" / "half").touch()
    assert install.install(tmp_path) == ["0.5.19"]
    assert not (tmp_path / "0.5.19" / "half").exists()


def test_changed_pins_make_the_environment_anew(
    tmp_path: Path, pip_calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    install.install(tmp_path)
    pins = tmp_path / "requirements.txt"
    pins.write_text("nothing==1\n")
    monkeypatch.setattr(install, "REQUIREMENTS", pins)
    assert install.install(tmp_path) == ["env"]


def test_an_unknown_version_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install.main(["--dir", str(tmp_path / "x"), "0.5.23", "0.4.0"]) == 2
    error = capsys.readouterr().err
    assert error == (
        "sglang harness: unknown SGLang version 0.4.0: this harness knows 0.5.19, 0.5.20, 0.5.21, 0.5.22, 0.5.23\n"
    )
    assert not (tmp_path / "x").exists()


def test_a_package_that_cannot_be_had_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pip(_python: Path, *_arguments: str, what: str) -> None:
        raise install.InstallError(f"{what}: no matching distribution")

    monkeypatch.setattr(install, "_pip", pip)
    monkeypatch.setattr(install.venv.EnvBuilder, "create", lambda _builder, env: env.mkdir(parents=True))
    assert install.main(["--dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "sglang harness: torch==2.13.0: no matching distribution\n"
    assert not install.is_complete(tmp_path / "env", None)


def test_the_environment_finds_the_plugin_by_the_entry_point_that_the_package_declares(
    tmp_path: Path,
) -> None:
    install.link_package(tmp_path)
    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])
    (point,) = found.entry_points
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {point.name: point.value} == declared[point.group]


def test_every_requirement_is_pinned_to_one_version() -> None:
    lines = install.REQUIREMENTS.read_text().split()
    assert len(lines) == 67
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+", line) for line in lines)
    assert install.TORCH in lines
