"""The pytest plugin as an implementer uses it, in a pytest of its own, on the worked adapter."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "examples" / "cache_adapter"
INSTALLED = any(point.name == "hicache_fsm" for point in entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "hicache_fsm.suite.plugin"]


def run_pytest(
    folder: Path, *arguments: str, plugin: list[str] | None = None
) -> subprocess.CompletedProcess[str]:
    own = PLUGIN if plugin is None else plugin
    plain = ["-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *own, *plain, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ADAPTER)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_an_option_alone_collects_the_suite_and_the_worked_adapter_passes_it(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--hicache-target", "adapter:make", "--hicache-examples", "25", "-q", "-rs")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " passed" in ran.stdout
    assert "toy cannot express it" in ran.stdout


def test_the_planted_fault_is_found_with_a_scenario_that_reproduces_it(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--hicache-target", "adapter:leaky", "--hicache-examples", "25", "-q")
    assert ran.returncode == 1
    assert "no-residue" in ran.stdout
    assert "test_random_runs_keep_every_invariant" in ran.stdout
    assert "?abort" in ran.stdout
    assert "prompts = {" in ran.stdout


def test_a_subclass_names_its_target_its_budget_and_its_floor(tmp_path: Path) -> None:
    Path(tmp_path, "test_mine.py").write_text(
        "from adapter import ToyTarget\n"
        "from hicache_fsm.suite import Conformance\n"
        "from hicache_fsm.suite.stateful import Floor\n"
        "class TestToy(Conformance):\n"
        "    target = ToyTarget()\n"
        "    examples = 20\n"
        "    floor = Floor(states={'parked': 1})\n"
    )
    ran = run_pytest(tmp_path, "test_mine.py", "-q", "-k", "random")
    assert ran.returncode == 1
    assert "the random runs reached too little: parked 0 times, not 1" in ran.stdout


def test_an_unknown_target_is_one_line(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, "--hicache-target", "nowhere:make", "-q", "-x")
    assert ran.returncode != 0
    assert 'no target "nowhere:make"' in ran.stdout + ran.stderr


def test_nothing_is_collected_or_imported_unless_it_is_asked_for(tmp_path: Path) -> None:
    Path(tmp_path, "test_other.py").write_text(
        "import sys\n"
        "def test_light():\n"
        "    heavy = {'torch', 'hypothesis', 'typer', 'hicache_fsm.runtime', 'hicache_fsm.suite.oracle'}\n"
        "    assert not heavy & set(sys.modules)\n"
    )
    quiet = [*PLUGIN, "-p", "no:hypothesispytest"]
    ran = run_pytest(tmp_path, "-q", plugin=quiet)
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout
