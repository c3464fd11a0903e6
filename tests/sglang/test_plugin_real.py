"""The plugin in the real SGLang: what it finds in a sound engine, and in one with planted leaks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sglang_support import VERSIONS

from hicache_fsm.sglang.modes import EVERY_PASSES
from hicache_fsm.sglang.record import HarnessMissingError, RunError, StrictError, record, require

pytestmark = pytest.mark.sglang
Plugged = Callable[..., dict[str, Any]]
Planted = Callable[..., dict[str, Any]]
UNDER_FAULTS = ("--requests", "140", "--faults", "0.25", "--stage-aborts", "0.3", "--seed", "1")
BIG = ("--requests", "500", "--faults", "0.25", "--stage-aborts", "0.3")
KNOWN = "belief-evidence"
"""Upstream believes writes that failed, and says so on purpose (docs/upstream-findings.md)."""
LOSES_CREDITS = "0.5.20"
"""It forgets what an aborted request was credited, and keeps it for ever (docs/upstream-findings.md)."""
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


def allowed(version: str) -> set[str]:
    """The invariants that a version is known to break."""
    return {KNOWN, "no-residue"} if version == LOSES_CREDITS else {KNOWN}


def left_for_nobody(told: dict[str, Any], version: str) -> list[str]:
    """What is left in the end, without what the version is known to leave."""
    known = version == LOSES_CREDITS
    return [
        line for line in told["left"] if not (known and re.search(r"attempt \d+: credit \d+ since", line))
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_strict_finds_nothing_but_what_is_listed_as_upstreams(plugged: Plugged, version: str) -> None:
    told = plugged(version, "strict", *UNDER_FAULTS, allow=",".join(sorted(allowed(version))))
    assert set(told["findings"]) <= allowed(version)
    assert left_for_nobody(told, version) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_no_change_of_ownership_escapes_the_hooks(plugged: Plugged, version: str) -> None:
    told = plugged(version, "strict", *UNDER_FAULTS, allow=",".join(sorted(allowed(version))))
    assert told["unseen_changes"] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_that_run_reaches_the_stages_and_the_faults(plugged: Plugged, version: str) -> None:
    told = plugged(version, "strict", *UNDER_FAULTS, allow=",".join(sorted(allowed(version))))
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
    strict = mode == "strict"
    told = plugged(version, mode, *BIG, allow=",".join(sorted(allowed(version))) if strict else "")
    assert set(told["findings"]) <= allowed(version)
    assert (left_for_nobody(told, version) if strict else told["left"]) == []
    assert told["unseen_changes"] == 0
    assert set(told["aborted_at"]) == {"asking", "missed", "parked", "transferring", "staged", "running"}


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("page_size", ["1", "16"])
def test_in_cache_mode_strict_finds_nothing(plugged: Plugged, version: str, page_size: str) -> None:
    known = allowed(version) - {KNOWN}
    cached = (*UNDER_FAULTS, "--mode", "cache", "--page-size", page_size)
    told = plugged(version, "strict", *cached, allow=",".join(known))
    assert set(told["findings"]) <= known
    assert left_for_nobody(told, version) == []
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
    also = {"credit"} if version == LOSES_CREDITS else set()
    assert set(told["repaired"]) - also == {plant}
    assert told["left"] == []


@pytest.mark.parametrize("plant", [*FILED, *TOTALS, "belief", "unseen exit"])
@pytest.mark.parametrize("version", VERSIONS)
def test_strict_raises(planted: Planted, version: str, plant: str) -> None:
    assert planted(version)[plant]["raised"]


@pytest.mark.parametrize("plant", [*FILED, *TOTALS, "unseen exit"])
@pytest.mark.parametrize("version", VERSIONS)
def test_judged_every_sixteen_passes_it_is_told_and_repaired_too(
    planted: Planted, version: str, plant: str
) -> None:
    """A prefetch left in flight has ended by then, and leaves a marker."""
    told = planted(version, every=EVERY_PASSES)[plant]
    kind = "marker" if plant == "entry" else plant if plant in FILED else ""
    assert any(kind in line for line in told["warned"])
    assert told["repaired"]
    assert told["left_repaired"] == []
    assert told["raised"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_violation_carries_the_history_of_its_attempt(planted: Planted, version: str) -> None:
    if version == "0.5.20":
        pytest.skip("stops before, at what an abort leaves credited there")
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


@pytest.mark.soak
def test_0520_keeps_what_an_aborted_request_was_credited_and_enforce_drops_it(plugged: Plugged) -> None:
    """Its `release_aborted_request` takes the request id for the handle."""
    told = plugged(LOSES_CREDITS, "observe", *BIG)
    assert len(told["left"]) == told["findings"]["no-residue"] > 0
    assert left_for_nobody(told, LOSES_CREDITS) == []
    assert plugged(LOSES_CREDITS, "enforce", *BIG)["repairs"]["credit"] > 0


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
