"""How the plugin tells a sweep of the real ``StoragePrefetchRetries`` of 0.5.23."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from hicache_fsm.sglang.assembly import Plugin
from hicache_fsm.sglang.excerpt import excerpt
from hicache_fsm.sglang.guard import Guard
from hicache_fsm.sglang.hooks import Hooks
from hicache_fsm.sglang.install import DEFAULT_ROOT
from hicache_fsm.sglang.keeper import Keeper
from hicache_fsm.sglang.modes import Mode, Options
from hicache_fsm.sglang.recorder import Recorder
from hicache_fsm.sglang.watch import RETRIES, Watch

pytestmark = pytest.mark.sglang
INTERVAL, MAX_ATTEMPTS = 4, 2
Swept = Callable[..., tuple[list[tuple[str, bool]], Recorder]]


class Told(Recorder):
    """Keeps what is told of sweeps: request id, and whether the head rule took the marker."""

    def __init__(self) -> None:
        super().__init__(None)
        self.sweeps: list[tuple[str, bool]] = []

    def prefetch(self, event: str, rid: str, **members: Any) -> None:
        if event == "sweep":
            self.sweeps.append((rid, members["facts"]["head_exempt"]))


@pytest.fixture
def swept() -> Swept:
    """``swept(marker, spent)``: one sweep with that marker at the queue head, whose budget is ``spent``."""
    source = DEFAULT_ROOT / "0.5.23" / "sglang" / "srt" / "mem_cache" / "storage_prefetch.py"
    if not source.exists():
        pytest.skip(f"{source} is missing: run `make sglang`")
    names = ["_StoragePrefetchRetry", "StoragePrefetchRetries"]
    found = excerpt(source, names, dataclass=dataclass, Optional=Optional)

    def sweep(marker: str, spent: int) -> tuple[list[tuple[str, bool]], Recorder]:
        recorder, retries = Told(), found["StoragePrefetchRetries"]()
        hooks = Hooks(recorder, Watch(Keeper(Options(Mode.OBSERVE)), "0.5.23"), "0.5.23")
        request = SimpleNamespace(rid="r1", storage_prefetch_retry_attempts=spent)
        recorder.begin_attempt(request)
        getattr(retries, marker)("r1")
        target = f"{RETRIES}.pop_ready"
        pop_ready = Guard().around(hooks.pop_ready, hooks.filters()[target])
        pop_ready(found["StoragePrefetchRetries"].pop_ready, retries, [request], INTERVAL, MAX_ATTEMPTS)
        assert not retries._pending
        return recorder.sweeps, recorder

    return sweep


def test_a_miss_at_the_queue_head_is_dropped_by_the_head_rule(swept: Swept) -> None:
    told, recorder = swept("poll_miss", spent=0)
    assert told == [("r1", True)]
    attempt = recorder.attempt("r1")
    assert attempt is not None
    assert not attempt.spent_out


def test_an_immediate_marker_at_the_queue_head_is_cancelled_by_its_spent_budget(swept: Swept) -> None:
    told, recorder = swept("refetch", spent=MAX_ATTEMPTS)
    assert told == [("r1", False)]
    attempt = recorder.attempt("r1")
    assert attempt is not None
    assert attempt.spent_out


def test_an_immediate_marker_with_budget_left_is_told_by_its_question(swept: Swept) -> None:
    told, _ = swept("refetch", spent=0)
    assert told == []


def test_a_marker_that_waits_costs_a_sweep_nothing(swept: Swept) -> None:
    waiting = SimpleNamespace(due_step=9, immediate=False)
    retries = SimpleNamespace(_pending={"r2": waiting}, _step=3)
    hooks = Hooks(Told(), Watch(Keeper(Options(Mode.OBSERVE)), "0.5.23"), "0.5.23")
    matters = hooks.filters()[f"{RETRIES}.pop_ready"]
    queue = [SimpleNamespace(rid="r1"), SimpleNamespace(rid="r2")]
    assert not matters(retries, queue, INTERVAL, MAX_ATTEMPTS)
    assert matters(retries, queue[1:], INTERVAL, MAX_ATTEMPTS)
    waiting.due_step = 4
    assert matters(retries, queue, INTERVAL, MAX_ATTEMPTS)


@pytest.mark.parametrize(
    ("mode", "tells"), [(Mode.OBSERVE, False), (Mode.ENFORCE, False), (Mode.STRICT, True)]
)
def test_hooks_that_only_tell_are_there_only_where_someone_listens(mode: Mode, tells: bool) -> None:
    plugin = Plugin(Options(mode), "0.5.23")
    hooked = {*plugin.around(), *(target for target, _ in plugin.before())}
    names = {target.rsplit(".", 1)[1] for target in hooked}
    only_telling = {
        "pop_ready",
        "_evict",
        "_prefetch_kvcache",
        "process_batch_result",
        "check_prefetch_progress",
    }
    assert bool(only_telling & names) is tells


def test_no_target_has_two_around_hooks_and_none_is_left_out() -> None:
    quiet, told = Plugin(Options(Mode.OBSERVE), "0.5.19"), Plugin(Options(Mode.STRICT), "0.5.19")
    assert set(quiet.around()) <= set(told.around())
    assert {target for target, _ in quiet.before()} <= {target for target, _ in told.before()}
