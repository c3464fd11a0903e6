"""The drop-in retries inside the real scheduler of each version."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_support import SINCE_0520, VERSIONS, Played

from hicache_fsm.sglang import releases
from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
from hicache_fsm.sglang.modes import RETRIES
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, require

pytestmark = pytest.mark.sglang
WORKLOAD = ("--sessions", "8")
SCRIPT = """
import os
import sys
from hicache_fsm.sglang import retries, run

calls = 0

def counted(method):
    def call(*args, **kwargs):
        global calls
        calls += 1
        return method(*args, **kwargs)
    return call

retries.StoragePrefetchRetries.pop_ready = counted(retries.StoragePrefetchRetries.pop_ready)
retries.MissMarkers.sweep = counted(retries.MissMarkers.sweep)
if sys.argv[2] == "assigned":
    # as `run` does, before SGLang is imported
    os.environ |= {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "40"}
    from hicache_fsm.sglang.harness.stepped import SteppedScheduler

    build = SteppedScheduler.__init__

    def assign(engine, *args, **kwargs):
        build(engine, *args, **kwargs)
        engine.scheduler.tree_cache.storage_prefetch_retries = retries.StoragePrefetchRetries(sys.argv[1])

    SteppedScheduler.__init__ = assign
code = run.main(sys.argv[3:])
print("sweeps by the drop-in:", calls)
sys.exit(code)
"""


def replaced(version: str, profile: str, folder: Path, how: str = "registered") -> Played:
    """The workload with the drop-in in the place of SGLang's own, recorded where it was registered."""
    try:
        require(version)
    except HarnessMissingError as missing:
        pytest.skip(str(missing))
    log, outputs, storage = folder / "log.jsonl", folder / "outputs.json", folder / "storage"
    storage.mkdir()
    environment = child_environment(version, storage, DEFAULT_ROOT, log=log if how == "registered" else None)
    if how == "registered":
        environment[RETRIES] = profile
    command = [str(env_python(DEFAULT_ROOT)), "-c", SCRIPT, profile, how, "--version", version, *WORKLOAD]
    done = subprocess.run(
        [*command, "--outputs", str(outputs)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Played(done.stdout.splitlines(), json.loads(outputs.read_text()), log)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_the_scheduler_decides_and_logs_the_same_with_the_drop_in(
    play: Callable[..., Played], tmp_path: Path, version: str
) -> None:
    profile, _ = releases.profile(version)
    original, ours = play(version, *WORKLOAD), replaced(version, profile, tmp_path)
    assert int(ours.printed[-1].rpartition(" ")[2]) > 100
    assert ours.outputs == original.outputs
    assert any(line["event"] == "sweep" and "op" in line for line in ours.events()[1:-1])
    assert ours.events() == original.events()


@pytest.mark.slow
def test_an_engine_that_is_already_built_takes_the_drop_in_by_assignment(
    play: Callable[..., Played], tmp_path: Path
) -> None:
    ours = replaced("0.5.23", "sglang-0.5.23", tmp_path, "assigned")
    assert int(ours.printed[-1].rpartition(" ")[2]) > 100
    assert ours.outputs == play("0.5.23", *WORKLOAD).outputs


@pytest.mark.slow
@pytest.mark.parametrize("version", SINCE_0520)
def test_the_engine_drains_and_owns_nothing_under_the_recommended_profile(
    tmp_path: Path, version: str
) -> None:
    ours = replaced(version, "recommended", tmp_path)
    assert ours.events()[-1]["idle"]
    assert set(ours.events()[-1]["residue"].values()) == {0}
