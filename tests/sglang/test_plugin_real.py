"""The plugin in the real SGLang: what it finds in a sound engine, and in one with planted leaks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.sglang.record import HarnessMissingError, RunError, StrictError, record, require

pytestmark = pytest.mark.sglang
VERSIONS = ("0.5.19", "0.5.23")
Plugged = Callable[..., dict[str, Any]]
Planted = Callable[..., dict[str, Any]]
UNDER_FAULTS = ("--requests", "140", "--faults", "0.25", "--stage-aborts", "0.3", "--seed", "1")
BIG = ("--requests", "500", "--faults", "0.25", "--stage-aborts", "0.3")
KNOWN = "belief-evidence"
"""Upstream believes writes that failed, and says so on purpose (docs/upstream-findings.md)."""
FILED = {
    "pin": "pin-owned",
    "hold": "no-residue",
    "context": "no-residue",
    "credit": "no-residue",
    "marker": "marker-owned",
    "entry": "no-residue",
}
"""Plants that leave something under a request, with the invariant that they break."""
TOTALS = ("occupancy", "host_pages")


# ---- a sound engine under a storage that fails


@pytest.mark.parametrize("version", VERSIONS)
def test_strict_finds_nothing_but_what_is_listed_as_upstreams(plugged: Plugged, version: str) -> None:
    told = plugged(version, "strict", *UNDER_FAULTS, allow=KNOWN)
    assert set(told["findings"]) <= {KNOWN}
    assert told["left"] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_no_change_of_ownership_escapes_the_hooks(plugged: Plugged, version: str) -> None:
    assert plugged(version, "strict", *UNDER_FAULTS, allow=KNOWN)["unseen_changes"] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_that_run_reaches_the_stages_and_the_faults(plugged: Plugged, version: str) -> None:
    told = plugged(version, "strict", *UNDER_FAULTS, allow=KNOWN)
    assert len(told["aborted_at"]) >= 4
    assert {name.split()[0] for name in told["faults"]} == {"exists", "read", "write"}
    assert {"late", "short", "wrong"} <= {name.split()[1] for name in told["faults"]}
    assert told["audits"] >= 5


def test_enforce_on_the_same_seed_ends_with_nothing_left(plugged: Plugged) -> None:
    told = plugged("0.5.23", "enforce", *UNDER_FAULTS)
    assert told["left"] == []
    assert told["repairs"] == {"belief": told["findings"][KNOWN]}


def test_no_change_escapes_them_where_nobody_listens_to_events(plugged: Plugged) -> None:
    assert plugged("0.5.23", "enforce", *UNDER_FAULTS)["unseen_changes"] == 0


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["strict", "enforce"])
@pytest.mark.parametrize("version", VERSIONS)
def test_five_hundred_requests_leave_nothing(plugged: Plugged, version: str, mode: str) -> None:
    told = plugged(version, mode, *BIG, allow=KNOWN if mode == "strict" else "")
    assert set(told["findings"]) <= {KNOWN}
    assert told["left"] == []
    assert told["unseen_changes"] == 0
    assert set(told["aborted_at"]) == {"asking", "missed", "parked", "transferring", "staged", "running"}


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("page_size", ["1", "16"])
def test_in_cache_mode_strict_finds_nothing(plugged: Plugged, version: str, page_size: str) -> None:
    told = plugged(version, "strict", *UNDER_FAULTS, "--mode", "cache", "--page-size", page_size)
    assert told["findings"] == {}
    assert told["unseen_changes"] == 0


# ---- planted leaks


@pytest.mark.parametrize("plant", FILED)
@pytest.mark.parametrize("version", VERSIONS)
def test_observe_names_the_attempt_what_it_holds_since_when_and_how_it_left(
    planted: Planted, version: str, plant: str
) -> None:
    told = planted(version)[plant]
    assert told["raised_observe"] is None
    line = next(line for line in told["warned"] if re.search(rf"holds an? {plant}\b", line))
    assert line.startswith(f"hicache-fsm {FILED[plant]}: pass ")
    assert re.search(
        r"r\d+ attempt 0 still holds .* since pass \d+; it left by (abort|admit).* in pass \d+", line
    )


@pytest.mark.parametrize("plant", TOTALS)
@pytest.mark.parametrize("version", VERSIONS)
def test_observe_tells_a_book_that_does_not_add_up(planted: Planted, version: str, plant: str) -> None:
    assert any("conservation" in line for line in planted(version)[plant]["warned"])


@pytest.mark.parametrize("version", VERSIONS)
def test_an_exit_that_no_hook_saw_is_found_by_an_audit(planted: Planted, version: str) -> None:
    told = planted(version)["unseen exit"]
    assert any("left by an exit that no hook saw" in line for line in told["warned"])
    assert told["left_repaired"] == []


@pytest.mark.parametrize("plant", [*FILED, *TOTALS, "unseen exit"])
@pytest.mark.parametrize("version", VERSIONS)
def test_enforce_repairs_it(planted: Planted, version: str, plant: str) -> None:
    told = planted(version)[plant]
    assert told["repaired"]
    assert told["left_repaired"] == []


@pytest.mark.parametrize("plant", ["pin", "marker", "belief"])
@pytest.mark.parametrize("version", VERSIONS)
def test_enforce_repairs_as_soon_as_it_finds(planted: Planted, version: str, plant: str) -> None:
    told = planted(version)[plant]["at_once"]
    assert set(told["repaired"]) == {plant}
    assert told["left"] == []


@pytest.mark.parametrize("plant", [*FILED, *TOTALS, "belief", "unseen exit"])
@pytest.mark.parametrize("version", VERSIONS)
def test_strict_raises(planted: Planted, version: str, plant: str) -> None:
    assert planted(version)[plant]["raised"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_violation_carries_the_history_of_its_attempt(planted: Planted, version: str) -> None:
    first, *history = planted(version, "strict", "pin")["pin"]["raised"].splitlines()
    assert first.startswith("pin-owned: pass ")
    assert [line.split()[2] for line in history] == ["enqueue", "issue", "hit", "done", "abort"]


@pytest.mark.parametrize("version", VERSIONS)
def test_beliefs_of_a_storage_that_was_detached_are_dropped(planted: Planted, version: str) -> None:
    told = planted(version)["detach"]
    assert told["done"]
    assert told["believed"] > 0
    assert told["left"] == 0
    assert any("after their storage was detached" in line for line in told["warned"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fault_of_the_plugin_switches_it_off_and_the_engine_runs_on(planted: Planted, version: str) -> None:
    told = planted(version)["fault of the plugin"]
    assert told["finished"] == ["length", "length"]
    assert told["off"]
    assert len([line for line in told["told"] if "the engine runs on" in line]) == 1


# ---- what is upstream's (docs/upstream-findings.md)


def _played(version: str, *arguments: str, mode: str = "strict") -> list[str]:
    try:
        require(version)
    except HarnessMissingError as missing:
        pytest.skip(str(missing))
    return record(version, None, arguments=arguments, plugin={"HICACHE_FSM_MODE": mode})


@pytest.mark.slow
def test_strict_stops_at_a_failed_write_that_is_believed() -> None:
    with pytest.raises(StrictError, match="believed stored after a write that failed"):
        _played("0.5.23", "--requests", "40", "--faults", "0.3")


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "said"), [("0", "prefetch anchor already locked"), ("1", "AssertionError")])
def test_late_answers_under_best_effort_end_the_engine(seed: str, said: str) -> None:
    """#39318: the drain of answers never compares the operation."""
    arguments = ("--policy", "best_effort", "--requests", "60", "--faults", "0.3", "--fault-kinds", "late")
    with pytest.raises(RunError, match=said):
        _played("0.5.23", *arguments, "--seed", seed, mode="observe")


@pytest.mark.slow
def test_a_storage_call_that_raises_ends_a_thread_of_0519() -> None:
    with pytest.raises(RunError, match="thread has ended"):
        _played("0.5.19", "--requests", "40", "--faults", "0.3", "--fault-kinds", "error", mode="observe")


@pytest.mark.slow
def test_enforce_changes_nothing_in_an_engine_that_has_nothing_to_mend(
    play: Callable[..., Any], tmp_path: Path
) -> None:
    outputs = tmp_path / "outputs.json"
    record("0.5.23", None, outputs=outputs, plugin={"HICACHE_FSM_MODE": "enforce"})
    assert play("0.5.23", recorded=False).outputs == json.loads(outputs.read_text())
