"""Every effect under every fault leaves nothing; what does leave something is caught."""

import ast
import inspect
import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.executor import faults
from hicache_fsm.executor.cells import FAULTS, LEDGER_ONLY, SCENARIOS, Cell, run_all, run_cell
from hicache_fsm.executor.device import Layout
from hicache_fsm.executor.fetches import Fetch
from hicache_fsm.executor.lanes import Job
from hicache_fsm.executor.torchpools import TorchPools
from hicache_fsm.executor.writes import Write
from hicache_fsm.runtime import AttemptKey, Executor, Undo
from hicache_fsm.spec import load_spec

PAGE = Path(__file__).parents[2] / "docs/effects.md"


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return run_all()


def test_no_cell_leaves_anything_or_loses_count(cells: list[Cell]) -> None:
    assert [cell for cell in cells if cell.problems] == []
    assert len(cells) == len(SCENARIOS) * len(FAULTS) == 95


@pytest.mark.parametrize("layout", ["dense", "swa"])
def test_no_cell_leaves_anything_on_a_pool_of_one_side_either(layout: Layout) -> None:
    """A tombstone has no rows on a pool that is all window: no I/O that `free_full` could meet."""
    effects = [effect for effect in SCENARIOS if (layout, effect) != ("swa", "free_full")]
    spec = load_spec()
    cells = [run_cell(effect, fault, spec=spec, layout=layout) for effect in effects for fault in FAULTS]
    assert [cell for cell in cells if cell.problems] == []


def test_the_page_is_what_happens(cells: list[Cell]) -> None:
    assert PAGE.read_text() == faults.page(cells, LEDGER_ONLY), (
        "run `python -m hicache_fsm.executor.faults --page`"
    )


def test_every_effect_of_the_protocol_has_a_row() -> None:
    effects = {
        name for name, _ in inspect.getmembers(Executor, inspect.isfunction) if not name.startswith("_")
    }
    assert set(SCENARIOS) == effects - {"room"}


def test_every_effect_of_the_spec_that_touches_a_pool_has_a_row() -> None:
    named = {effect for machine in load_spec().machines.values() for effect in machine.effects}
    assert named - LEDGER_ONLY == set(SCENARIOS)
    assert named >= LEDGER_ONLY


class ForgetsUndoOfPages(TorchPools):
    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None:
        super().take_pages(key, op, pages, lambda way_back: None)


class ForgetsUndoOfWrites(TorchPools):
    def launch_write(self, pool: str, pages: Sequence[Hashable], undo: Undo) -> None:
        super().launch_write(pool, pages, lambda way_back: None)


class ForgetsUndoOfClaims(TorchPools):
    def claim(self, node: Hashable, owner: Hashable, undo: Undo) -> None:
        super().claim(node, owner, lambda way_back: None)


class ForgetsUndoOfLocks(TorchPools):
    def lock_anchor(self, key: AttemptKey, node: Hashable, tokens: int, undo: Undo) -> None:
        super().lock_anchor(key, node, tokens, lambda way_back: None)


class FreesUnderIo(TorchPools):
    """The use after free of #31668: an abort gives the pages back while a thread still writes them."""

    def orphan_operation(self, key: AttemptKey, op: int) -> None:
        fetch = self._operation(key, op)
        super().orphan_operation(key, op)
        while fetch.blocks:
            self.host.slots._reclaim(fetch.blocks.pop())


class NeverSettles(TorchPools):
    def settle_write(self, pool: str, pages: Sequence[Hashable]) -> None:
        pass


class DropsHolds(TorchPools):
    def release_hold(self, key: AttemptKey, pages: int) -> None:
        self._holds.pop(key, None)


class FreesBothOfTombstones(TorchPools):
    """The mistake of #36637: a plain free for a node whose SWA side is gone."""

    def free_full(self, node: Hashable) -> None:
        self.free_both(node)


class UndoesOneWriteOnly(TorchPools):
    def _withdraw(self, writes: list[Write], jobs: list[Job]) -> None:
        super()._withdraw(writes[:1], jobs)


class KeepsConsumedHolds(TorchPools):
    """Pages go back with the copy, and once more with whatever comes next."""

    def _drop_hold(self, key: AttemptKey) -> None:
        for block in self._holds[key].blocks if key in self._holds else ():
            block.release()


class FreesHoldsUnderCopy(TorchPools):
    def _drop_hold(self, key: AttemptKey) -> None:
        for block in self._holds.pop(key).blocks if key in self._holds else ():
            self.host.slots._reclaim(block)


class EvictsUnderIo(TorchPools):
    def free_both(self, node: Hashable) -> None:
        planted = self._unlocked(node)
        if planted is not None and planted.span is not None:
            for block in planted.span.blocks:
                block._pool._reclaim(block)
            self._left(node, planted)


class FreesTheWindowTwice(TorchPools):
    """A release that is not harmless the second time."""

    def free_swa(self, node: Hashable) -> None:
        planted = self._unlocked(node)
        if planted is not None and planted.span is not None:
            self.device.free_swa(planted.span)


class ForgetsTheMapping(TorchPools):
    def free_swa(self, node: Hashable) -> None:
        planted = self._unlocked(node)
        if planted is not None and planted.span is not None and planted.span.swa is not None:
            planted.span.swa.release()
            planted.span.swa = None


class UnlocksForEverybody(TorchPools):
    def unlock_anchor(self, key: AttemptKey, node: Hashable, tokens: int) -> None:
        self._locks.pop(node, None)


class UnclaimsEarly(TorchPools):
    """The node is resident before its copy was acknowledged (#35931)."""

    def unclaim(self, node: Hashable, owner: Hashable) -> None:
        self._nodes[node].claim = None


class TakesFailedWritesForGood(TorchPools):
    def _acknowledge(self, writes: list[Write]) -> None:
        for write in writes:
            write.ok = True
        super()._acknowledge(writes)


class NeverAnswersErrors(TorchPools):
    def _answered(self, fetch: Fetch, job: Job) -> None:
        if job.error is None:
            super()._answered(fetch, job)


class WritesOtherRows(TorchPools):
    def _source(self, part: str, name: str) -> tuple[Any, Any]:
        block, slots = super()._source(part, name)
        return block, slots.flip(0)


@pytest.mark.parametrize(
    ("pools", "effect", "fault", "said"),
    [
        (ForgetsUndoOfPages, "take_pages", "raise after", "not {'kv': 16, 'swa': 16, 'host': 0} as before"),
        (ForgetsUndoOfWrites, "launch_write", "raise after", "host slots are not free at the end"),
        (ForgetsUndoOfClaims, "claim", "raise after", "as before"),
        (
            ForgetsUndoOfLocks,
            "lock_anchor",
            "raise after",
            "tokens pinned: the pools have 20, the lifecycle counts 4",
        ),
        (FreesUnderIo, "orphan_operation", "abort during", "I/O wrote into 2 pools' free slots"),
        (FreesUnderIo, "orphan_operation", "slow I/O", "were freed while I/O was under way on them"),
        (NeverSettles, "settle_write", "slow I/O", "host slots are not free at the end"),
        (DropsHolds, "release_hold", "slow I/O", "belong to nobody: leaked"),
        (FreesBothOfTombstones, "free_full", "slow I/O", "has no SWA side any more"),
        (UndoesOneWriteOnly, "launch_write", "raise after", "launch_write raised and the pools own"),
        (KeepsConsumedHolds, "consume_hold", "slow I/O", "hold of r#0 owns slots that were freed"),
        (FreesHoldsUnderCopy, "consume_hold", "abort during", "freed while I/O was under way on them"),
        (EvictsUnderIo, "free_both", "slow I/O", "freed while I/O was under way on them"),
        (FreesTheWindowTwice, "free_swa", "raise after", "is freed twice"),
        (ForgetsTheMapping, "free_swa", "raise before", "are mapped to SWA slots that are not theirs"),
        (UnlocksForEverybody, "unlock_anchor", "storage error", "tokens pinned: the pools have 0"),
        (UnclaimsEarly, "unclaim", "slow I/O", "node n is resident without its kv rows"),
        (
            TakesFailedWritesForGood,
            "launch_write",
            "storage error",
            "is believed, and storage has not got it",
        ),
        (NeverAnswersErrors, "ask", "storage error", "the lifecycle is not idle at the end"),
        (WritesOtherRows, "settle_write", "storage error", "is believed, and storage has not got it"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_a_planted_leak_is_caught(pools: type[TorchPools], effect: str, fault: str, said: str) -> None:
    sound = run_cell(effect, fault)  # type: ignore[arg-type]
    planted = run_cell(effect, fault, pools)  # type: ignore[arg-type]
    assert sound.problems == ()
    assert any(said in problem for problem in planted.problems), planted.problems


def test_a_cell_that_leaks_is_told_on_the_page_and_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leaking = run_cell("release_hold", "slow I/O", DropsHolds)
    monkeypatch.setattr("hicache_fsm.executor.cells.run_all", lambda: [leaking])
    assert faults.main(["--page"]) == 1
    assert "leaked" in capsys.readouterr().out
    assert faults.main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["effect"] == "release_hold"


def test_no_module_of_the_pools_sleeps() -> None:
    for source in Path(inspect.getfile(faults)).parent.glob("*.py"):
        calls = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Call)]
        assert not [call for call in calls if getattr(call.func, "attr", "") == "sleep"], source.name
