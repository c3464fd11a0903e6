"""Layouts with pools beside the KV pool (SWA, states) on the real SGLang: runs under faults, planted faults, nodes."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, require

pytestmark = pytest.mark.sglang
VERSION = "0.5.23"
LAYOUTS = ("swa", "mamba")
KNOWN = "belief-evidence"
"""Upstream believes writes that failed, those of the pools beside the KV pool too (docs/upstream-findings.md)."""
FAULTS = ("--faults", "0.25", "--stage-aborts", "0.3")
MODES = ("observe", "enforce", "strict")
SCENARIOS = (
    "tombstone and eviction",
    "load-back",
    "load-back of what a tombstone lost",
    "load-back under another",
    "not over",
    "pinned",
    "nothing to load",
    *(
        f"{effect} raises {when}"
        for effect in ("claim", "unclaim", "free_swa", "free_both", "free_full")
        for when in ("before", "after")
    ),
)
BROKEN = {
    "FreesTheWindowTwice: tombstone and eviction": "AssertionError",
    "FreesBothSidesOfATombstone: free_full raises before": "the padding slot of pool swa was given back",
    "KeepsTheWindow: free_swa raises before": "top is tombstoned, and has 16 full and 16 window slots",
    "UnclaimsEarly: not over": "a copy counted as over that SGLang has not acknowledged",
}
FOUND = {
    "swa": {
        "host page": r"conservation: .* 32 host slots of pool swa are in use and nobody's: \d+, ",
        "hold": r"no-residue: .* r\d+ attempt 0 still holds a hold of 100 tokens and 32 slots of pool swa since pass",
        "freed twice": r"tombstone-once: .* 3 device slots of pool swa were given back twice",
        "never freed": r"tombstone-once: .* device pages of pool swa belong to full pages that are free",
        "padding": r"tombstone-once: .* 1 times the padding slot of pool swa was given back",
        "two owners": r"conservation: .* 1 device slots of pool swa have two owners",
    },
    "mamba": {
        "host page": r"conservation: .* 1 host slots of pool mamba are in use and nobody's: \d+, ",
        "hold": r"no-residue: .* still holds a hold of 100 tokens and 1 slots of pool mamba since pass",
        "state lost": r"conservation: .* 1 device states of pool mamba are neither free nor in the tree, at rest",
        "state freed twice": r"conservation: .* 1 device slots of pool mamba were given back twice",
        "host state freed twice": r"conservation: .* 1 host slots of pool mamba were given back twice",
    },
}
"""By layout and plant, what is told."""
Plugged = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """``script(name, *arguments, mode="")``: what a script of this folder prints inside SGLang's environment."""

    @functools.cache
    def run(name: str, *arguments: str, mode: str = "") -> Any:
        try:
            require(VERSION)
        except HarnessMissingError as missing:
            pytest.skip(str(missing))
        plugin = {"HICACHE_FSM_MODE": mode} if mode else None
        environment = child_environment(VERSION, tmp_path_factory.mktemp("hybrid"), plugin=plugin)
        command = [str(env_python(DEFAULT_ROOT)), str(Path(__file__).with_name(name)), *arguments]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert results, done.stderr[-3000:]
        return json.loads(results[0].removeprefix("RESULT "))

    return run


# ---- runs


def test_strict_finds_nothing_but_what_is_upstreams_with_a_window_pool(plugged: Plugged) -> None:
    told = plugged(
        VERSION, "strict", "--layout", "swa", "--requests", "60", *FAULTS, "--seed", "1", allow=KNOWN
    )
    assert set(told["findings"]) == {KNOWN}
    assert (told["left"], told["unseen_changes"], told["off"]) == ([], 0, False)
    assert {"exists", "read", "write"} == {name.split()[0] for name in told["faults"]}


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["strict", "enforce"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_five_hundred_requests_leave_nothing_in_any_pool(plugged: Plugged, layout: str, mode: str) -> None:
    allow = KNOWN if mode == "strict" else ""
    told = plugged(VERSION, mode, "--layout", layout, "--requests", "500", *FAULTS, allow=allow)
    assert set(told["findings"]) <= {KNOWN}
    assert (told["left"], told["unseen_changes"], told["off"]) == ([], 0, False)
    assert len(told["aborted_at"]) >= 5


@pytest.mark.soak
@pytest.mark.parametrize(("layout", "page_size"), [("swa", "1"), ("swa", "16"), ("mamba", "1")])
def test_in_cache_mode_strict_finds_nothing_in_any_pool(
    plugged: Plugged, layout: str, page_size: str
) -> None:
    arguments = (
        "--layout",
        layout,
        "--mode",
        "cache",
        "--page-size",
        page_size,
        "--requests",
        "140",
        *FAULTS,
    )
    told = plugged(VERSION, "strict", *arguments)
    assert (told["findings"], told["left"], told["unseen_changes"], told["off"]) == ({}, [], 0, False)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["buffer_only", "cache"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_outputs_are_those_of_an_engine_without_a_cache(
    play: Callable[..., Any], layout: str, mode: str
) -> None:
    arguments = ("--layout", layout, "--sessions", "12")
    cached = play(VERSION, *arguments, "--storage", "file", "--mode", mode).outputs
    plain = play(VERSION, *arguments, "--no-cache", recorded=False).outputs
    both = [rid for rid in cached if cached[rid]["finish"] == plain[rid]["finish"] == "length"]
    assert len(both) > 30
    assert [rid for rid in both if cached[rid]["tokens"] != plain[rid]["tokens"]] == []


@pytest.mark.soak
@pytest.mark.parametrize("options", [(), ("--no-hicache",)])
def test_a_prompt_with_a_known_head_is_never_admitted_to_an_idle_engine(
    script: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """What is upstream's: docs/upstream-findings.md."""
    admitted = script("window_wedge.py", *options)
    assert admitted["unknown head"] is not None
    assert admitted["known head"] is None


# ---- planted faults


@pytest.mark.parametrize(
    ("layout", "plant", "mode"),
    [
        pytest.param(layout, plant, mode, marks=[pytest.mark.soak] if layout == "mamba" else [])
        for layout, plants in FOUND.items()
        for plant in plants
        for mode in MODES
    ],
)
def test_a_fault_of_a_pool_beside_the_kv_pool_is_found(
    script: Callable[..., Any], layout: str, plant: str, mode: str
) -> None:
    told = script("planted_sides.py", layout, mode="observe")[plant][mode]
    assert any(re.search(FOUND[layout][plant], line) for line in told["warned"])
    assert bool(told["raised"]) == (mode == "strict")


@pytest.mark.parametrize(
    ("plant", "repair"), [("host page", {"host_pages": 1}), ("hold", {"hold": 1, "pin": 1})]
)
@pytest.mark.parametrize("layout", ["swa", pytest.param("mamba", marks=pytest.mark.soak)])
def test_enforce_gives_back_what_a_hold_has_beside_the_kv_pool(
    script: Callable[..., Any], layout: str, plant: str, repair: dict[str, int]
) -> None:
    told = script("planted_sides.py", layout, mode="observe")[plant]["enforce"]
    assert (told["repaired"], told["left"]) == (repair, 0)


# ---- the node machine on the real tree


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_node_machine_and_the_real_tree_agree(script: Callable[..., Any], scenario: str) -> None:
    assert script("nodes_scenarios.py")[scenario] == []


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_executor_of_nodes_is_seen_36637(script: Callable[..., Any], broken: str) -> None:
    assert any(BROKEN[broken] in line for line in script("nodes_scenarios.py")[broken])
