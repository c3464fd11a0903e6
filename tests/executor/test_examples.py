"""The example scheduler does what docs/embedding.md says of it."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from hicache_fsm.executor.host import HostPool
from hicache_fsm.executor.stores import FileStore
from hicache_fsm.runtime import AttemptKey

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    yield importlib.import_module("conversations")
    sys.path.remove(str(EXAMPLES))


def test_all_requests_but_the_aborted_one_finish_on_the_right_rows(example: ModuleType) -> None:
    account: list[str] = []
    counts = example.play(account.append)
    assert sum(line.endswith(": finish") for line in account) == 8
    assert min(counts["device"], counts["storage"]) > 0
    for happened in ("partial_hit", "absent", "queued retracted", "abort, client", "56 tokens: scheduled"):
        assert any(happened in line for line in account), happened


def test_the_account_is_the_same_on_every_run(example: ModuleType) -> None:
    first: list[str] = []
    second: list[str] = []
    example.play(first.append)
    example.play(second.append)
    assert first == second


def test_passes_that_wait_for_no_io_end_as_well(example: ModuleType) -> None:
    account: list[str] = []
    example.play(account.append, paced=False)
    assert sum(line.endswith(": finish") for line in account) == 8


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


def test_slots_that_a_scheduler_forgets_is_noticed_at_the_end(
    example: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = sys.modules["scheduler"].Scheduler
    leave = scheduler.leave

    def forgets_one(self: Any, key: AttemptKey) -> None:
        if key.rid == "b2":
            self.pools.unseat = lambda key: None
        leave(self, key)

    monkeypatch.setattr(scheduler, "leave", forgets_one)
    with pytest.raises(AssertionError, match="slots are not free at the end"):
        example.play(lambda line: None)


def test_the_script_prints_its_account() -> None:
    told = subprocess.run(
        [sys.executable, EXAMPLES / "conversations.py"], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1] == "each row was the right one; every slot, page and pin went back"
