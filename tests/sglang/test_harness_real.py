"""The installed SGLang itself, stepped pass by pass, with and without the recorder and the cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_support import VERSIONS, Played

from hicache_fsm.replay import judge_file
from hicache_fsm.sglang.record import HarnessMissingError, record, require
from hicache_fsm.spec import load_spec

pytestmark = [pytest.mark.sglang, pytest.mark.slow]
Play = Callable[..., Played]
EVENT_FIELDS = {
    *("seq", "pass", "machine", "event", "rid", "attempt", "op", "facts", "why", "seen"),
    *("tokens", "wanted_tokens", "pages", "keep_pages", "pool", "again"),
}


def happened(played: Played) -> Counter[str]:
    """Events by name, with the shades that matter told apart."""
    names: Counter[str] = Counter()
    for line in played.events()[1:-1]:
        name = f"{line['machine']}.{line['event']}"
        names[name] += 1
        if name == "prefetch.sweep" and "op" in line:
            names["re-issue"] += 1
        if name == "prefetch.sweep" and not line["seen"]["armed"] and not line["facts"]["head_exempt"]:
            names["budget spent"] += "op" not in line
        if name == "prefetch.hit" and not line["facts"]["room"]:
            names["park"] += 1
        if name == "pin.pin" and line["why"] == "locked":
            names["pin taken"] += 1
    return names


@pytest.mark.parametrize("version", VERSIONS)
def test_the_workload_makes_every_part_of_the_lifecycle_happen(play: Play, version: str) -> None:
    names = happened(play(version))
    assert sum(names.values()) >= 2000
    for name, at_least in {
        "prefetch.miss": 50,
        "re-issue": 30,
        "budget spent": 1,
        "pin taken": 30,
        "pin.unpin": 30,
        "park": 3,
        "prefetch.unpark": 3,
        "prefetch.done": 30,
        "prefetch.abort": 5,
        "operation.end": 5,
        "prefetch.retract": 3,
        "node.evict": 30,
        "belief.write": 50,
        "belief.deny": 30,
    }.items():
        assert names[name] >= at_least, name


@pytest.mark.parametrize("version", VERSIONS)
def test_a_drained_engine_owns_nothing(play: Play, version: str) -> None:
    trailer = play(version).events()[-1]
    assert trailer["kind"] == "trailer"
    assert trailer["idle"] is True
    assert set(trailer["residue"].values()) == {0}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_is_numbered_without_a_gap_and_holds_no_tokens_and_no_text(play: Play, version: str) -> None:
    header, *events, _trailer = play(version).events()
    assert header["kind"] == "header"
    assert [line["seq"] for line in events] == list(range(1, len(events) + 1))
    for line in events:
        assert set(line) <= EVENT_FIELDS
        assert not any(isinstance(value, list) for value in line.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_log_holds_under_the_profile_that_it_names(play: Play, version: str) -> None:
    log = play(version).log
    assert log is not None
    verdict = judge_file(load_spec(), log)
    assert verdict.unexpected == []
    assert verdict.closed
    assert verdict.version == version


@pytest.mark.soak
def test_the_log_of_0520_does_not_hold_without_the_constant_that_it_names_40042(
    play: Play, tmp_path: Path
) -> None:
    log = play("0.5.20").log
    assert log is not None
    path = tmp_path / "log.jsonl"
    path.write_text(log.read_text().replace('"arms_too_short":true', '"arms_too_short":false'))
    assert {violation.rule for violation in judge_file(load_spec(), path).unexpected} == {"marker-once"}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_recorder_changes_neither_admissions_nor_outputs(play: Play, version: str) -> None:
    assert play(version).outputs == play(version, recorded=False).outputs


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("mode", ["buffer_only", "cache"])
@pytest.mark.parametrize("version", VERSIONS)
def test_greedy_outputs_equal_those_without_a_cache(
    play: Play, version: str, mode: str, page_size: int
) -> None:
    common = ("--sessions", "12")
    reference = play(version, *common, "--no-cache", recorded=False).outputs
    cached = play(
        version, *common, "--storage", "file", "--mode", mode, "--page-size", str(page_size)
    ).outputs
    both = [rid for rid in reference if reference[rid]["finish"] == cached[rid]["finish"] == "length"]
    assert len(both) >= 40
    assert [rid for rid in both if reference[rid]["tokens"] != cached[rid]["tokens"]] == []


def test_a_log_that_cannot_be_written_costs_the_log_and_not_the_run(play: Play, tmp_path: Path) -> None:
    try:
        require("0.5.23")
    except HarnessMissingError as missing:
        pytest.skip(str(missing))
    log = tmp_path / "no such folder" / "log.jsonl"
    printed = record("0.5.23", log, arguments=["--sessions", "4"])
    assert sum("the engine runs on" in line for line in printed) == 1
    assert not log.exists()
    assert any("length" in line for line in printed[-2:])
