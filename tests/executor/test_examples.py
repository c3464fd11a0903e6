"""The example scheduler does what docs/embedding.md says of it."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hicache_fsm.executor.host import HostPool
from hicache_fsm.executor.stores import FileStore

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_scheduler", ROOT / "examples/scheduler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_all_requests_but_the_aborted_one_finish_on_the_right_rows(example: ModuleType) -> None:
    account: list[str] = []
    counts = example.play(account.append)
    assert counts["finished"] == 8
    assert counts["retracted"] >= 1
    assert min(counts["device"], counts["storage"]) > 0
    for happened in ("partial_hit", "absent", "retracted", "aborted while", "from storage"):
        assert any(happened in line for line in account), happened


def test_the_account_is_the_same_on_every_run(example: ModuleType) -> None:
    first: list[str] = []
    second: list[str] = []
    example.play(first.append)
    example.play(second.append)
    assert first == second


def test_passes_that_wait_for_no_io_end_as_well(example: ModuleType) -> None:
    assert example.play(lambda line: None, paced=False)["finished"] == 8


def test_a_second_run_finds_in_files_what_the_first_has_written(example: ModuleType, tmp_path: Path) -> None:
    first = example.play(lambda line: None, FileStore(tmp_path))
    second = example.play(lambda line: None, FileStore(tmp_path))
    assert second["storage"] > first["storage"]
    assert second["computed"] < first["computed"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_the_pools_may_be_on_a_gpu(example: ModuleType) -> None:
    account: list[str] = []
    on_the_cpu: list[str] = []
    example.play(account.append, device="cuda")
    example.play(on_the_cpu.append)
    assert account == on_the_cpu


def test_rows_that_were_fetched_wrong_are_noticed(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostPool, "to_device", lambda *_: None)
    with pytest.raises(AssertionError, match="not its own"):
        example.play(lambda line: None)


def test_the_script_prints_its_account() -> None:
    told = subprocess.run(
        [sys.executable, ROOT / "examples/scheduler.py"], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1] == "each row was the right one; every slot, page and pin went back"
