"""The recorder only observes: results, exceptions and faults all pass it unchanged."""

from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.sglang.guard import Guard
from hicache_fsm.sglang.recorder import Recorder

Observer = Generator[None, Any, None]


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "log.jsonl")


def test_an_observer_sees_the_result_and_cannot_change_it(guard: Guard) -> None:
    seen = []

    def observer(value: int) -> Observer:
        result = yield
        seen.append((value, result))

    observed = guard.around(observer)
    assert observed(lambda value: value * 2, 21) == 42
    assert seen == [(21, 42)]


def test_an_exception_of_the_engine_passes_through_and_leaves_no_context_behind(guard: Guard) -> None:
    context = []

    def observer() -> Observer:
        context.append("inside")
        try:
            yield
        finally:
            context.pop()

    def broken() -> None:
        raise KeyError("engine")

    with pytest.raises(KeyError, match="engine"):
        guard.around(observer)(broken)
    assert context == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_fault_of_the_recorder_is_told_once_and_the_engine_runs_on(
    guard: Guard, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    calls = []

    def observer(_value: int) -> Observer:
        if when == "before":
            raise ValueError("recorder")
        yield
        raise ValueError("recorder")

    def engine(value: int) -> int:
        calls.append(value)
        return value

    observed = guard.around(observer)
    with caplog.at_level(logging.ERROR):
        assert [observed(engine, value) for value in range(5)] == list(range(5))
    assert calls == list(range(5))
    assert len(caplog.records) == 1
    assert "the engine runs on" in caplog.text


def test_an_observer_whose_signature_does_not_fit_is_a_fault_of_the_recorder(guard: Guard) -> None:
    def observer() -> Observer:
        yield

    assert guard.around(observer)(lambda one, two: one + two, 1, two=2) == 3


def test_without_an_engine_nothing_is_written(recorder: Recorder, tmp_path: Path) -> None:
    recorder.write("node", "evict", tokens=1)
    recorder.close()
    assert list(tmp_path.iterdir()) == []
