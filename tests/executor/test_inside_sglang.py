"""The example that runs a lifecycle inside the real SGLang scheduler's loop: the two agree on each pass."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, require

pytestmark = [pytest.mark.sglang, pytest.mark.slow]
EXAMPLES = Path(__file__).parents[2] / "examples"
LATER_BY_A_PASS = """
import sys
import inside_sglang
engine = inside_sglang.Mirror.engine
def later(mirror, header):
    constants = {**header["constants"], "interval": header["constants"]["interval"] + 1}
    engine(mirror, {**header, "constants": constants})
inside_sglang.Mirror.engine = later
sys.exit(inside_sglang.main())
"""


@pytest.fixture(autouse=True)
def laid_out() -> None:
    try:
        require("0.5.23")
    except HarnessMissingError as missing:
        pytest.skip(str(missing))


def test_lifecycle_and_scheduler_agree_on_each_pass() -> None:
    told = subprocess.run(
        [sys.executable, EXAMPLES / "inside_sglang.py", "--sessions", "16"], capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout + told.stderr
    summary, sweeps, comparisons, broken = told.stdout.splitlines()[-4:]
    assert summary.startswith("SGLang 0.5.23: 64 requests")
    assert int(sweeps.split()[4]) >= 10, sweeps
    assert int(comparisons.split()[0]) >= 5_000, comparisons
    assert comparisons.endswith(" 0 differences")
    assert broken == "  invariants broken: none"


def test_a_lifecycle_that_retries_a_pass_later_is_told_apart(tmp_path: Path) -> None:
    environment = child_environment("0.5.23", tmp_path)
    environment["PYTHONPATH"] += os.pathsep + str(EXAMPLES)
    command = [env_python(DEFAULT_ROOT), "-c", LATER_BY_A_PASS, "--sessions", "8"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert told.returncode == 1, told.stdout + told.stderr
    assert "offer to" in told.stdout or "the engine did what the lifecycle refuses" in told.stdout
