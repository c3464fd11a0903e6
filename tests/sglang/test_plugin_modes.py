"""The plugin's settings, and the wall between it and the engine."""

from __future__ import annotations

import logging
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.sglang import plugin
from hicache_fsm.sglang.guard import Guard
from hicache_fsm.sglang.modes import InvariantViolation, Mode, Options
from hicache_fsm.sglang.sink import Finding

Observer = Generator[None, Any, None]
FINDING = Finding(
    "pin-owned", "pin", 7, "r1", 0, 48, 3, 6, "abort (client)", "r1 attempt 0 still holds a pin"
)


@pytest.fixture
def guard() -> Guard:
    return Guard()


def test_without_any_variable_the_plugin_is_off() -> None:
    assert Options.of({}) == Options(Mode.OFF)


@pytest.mark.parametrize(
    "environment", [{"HICACHE_FSM_LOG": "log.jsonl"}, {"HICACHE_FSM_METRICS": "1"}], ids=["log", "metrics"]
)
def test_whoever_asks_for_a_log_or_metrics_asks_for_observe(environment: dict[str, str]) -> None:
    assert Options.of(environment).mode is Mode.OBSERVE


def test_every_variable_is_read() -> None:
    options = Options.of(
        {
            "HICACHE_FSM_MODE": "Enforce",
            "HICACHE_FSM_LOG": "log.jsonl",
            "HICACHE_FSM_METRICS": "true",
            "HICACHE_FSM_AUDIT_PASSES": "500",
            "HICACHE_FSM_EVERY": "8",
            "HICACHE_FSM_ALLOW": "belief-evidence, pin-cap",
        }
    )
    allow = frozenset({"belief-evidence", "pin-cap"})
    assert options == Options(
        Mode.ENFORCE, Path("log.jsonl"), metrics=True, every=8, audit_passes=500, allow=allow
    )


@pytest.mark.parametrize(
    ("name", "value", "mend"),
    [
        ("HICACHE_FSM_MODE", "strct", "off, observe, enforce, strict"),
        ("HICACHE_FSM_AUDIT_PASSES", "often", "a whole number"),
        ("HICACHE_FSM_AUDIT_PASSES", "-1", "a whole number"),
        ("HICACHE_FSM_EVERY", "now", "a whole number"),
        ("HICACHE_FSM_EVERY", "0", "1 or more"),
        ("HICACHE_FSM_RETRIES", "best", "recommended"),
        ("HICACHE_FSM_ALLOW", "no-residues", "no-residue"),
    ],
)
def test_a_wrong_setting_is_one_line_with_the_variable_and_the_mend_and_no_plugin(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str, mend: str
) -> None:
    monkeypatch.setenv("HICACHE_FSM_MODE", "observe")
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(plugin, "_register", lambda *_: pytest.fail("registered"))
    with caplog.at_level(logging.ERROR):
        plugin.register()
    assert len(caplog.records) == 1
    line = caplog.records[0].getMessage()
    assert f"{name}={value}" in line
    assert mend in line
    assert "\n" not in line


def test_strict_judges_on_each_pass_whatever_is_asked_for() -> None:
    assert Options.of({"HICACHE_FSM_MODE": "strict", "HICACHE_FSM_EVERY": "32"}).patience == 1
    assert Options.of({"HICACHE_FSM_MODE": "enforce", "HICACHE_FSM_EVERY": "32"}).patience == 32


def test_as_an_argument_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="HICACHE_FSM_MODE=lax: unknown mode"):
        plugin.install("lax")


def test_mode_off_registers_nothing() -> None:
    assert plugin.install("off") is None


def test_metrics_without_their_library_are_one_line_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HICACHE_FSM_METRICS", "1")
    monkeypatch.setattr(plugin, "METRICS_MODULE", "hicache_fsm.no_such_module")
    with caplog.at_level(logging.ERROR):
        plugin.register()
    assert len(caplog.records) == 1
    assert "pip install hicache-fsm[metrics]" in caplog.text


def test_a_violation_reads_as_one_line_and_the_history() -> None:
    violation = InvariantViolation(FINDING, ["pass 3  enqueue", "pass 6  abort (client)"], [FINDING])
    assert str(violation).splitlines() == [
        "pin-owned: pass 7: r1 attempt 0 still holds a pin",
        "  pass 3  enqueue",
        "  pass 6  abort (client)",
        "  and 1 more in the same pass",
    ]


def test_a_violation_passes_the_guard_and_switches_nothing_off(guard: Guard) -> None:
    def observer() -> Observer:
        raise InvariantViolation(FINDING)
        yield

    with pytest.raises(InvariantViolation):
        guard.around(observer)(lambda: 1)
    assert not guard.failed


def test_a_fault_while_noting_a_key_is_told_once_and_the_engine_runs_on(
    guard: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    def touch(*_: Any) -> None:
        raise KeyError("plugin")

    def after(_noted: Any, _result: Any) -> None:
        pytest.fail("heard")

    pair, before = guard.pair(touch, after), guard.before(touch)
    with caplog.at_level(logging.ERROR):
        assert [pair(lambda value: value * 2, 21) for _ in range(3)] == [42, 42, 42]
        before(1)
    assert len(caplog.records) == 1
    assert "the engine runs on" in caplog.text


def test_a_fault_in_one_hook_silences_all_of_them(guard: Guard) -> None:
    heard = []

    def broken() -> Observer:
        raise ValueError("plugin")
        yield

    def sound() -> Observer:
        heard.append("sound")
        yield

    guard.around(broken)(lambda: None)
    guard.around(sound)(lambda: None)
    assert heard == []
