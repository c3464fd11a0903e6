"""The manifest: read strictly, compared exactly, and the smallest models of it run."""

import json
from pathlib import Path

import pytest

from hicache_fsm.tlc import Outcome, TlcError, Tools, tla_dir
from hicache_fsm.tlc.manifest import Entry, load_manifest, mismatches
from hicache_fsm.tlc.output import Behaviour, Step
from hicache_fsm.tlc.suite import run_all

ENTRY = Entry("M", "M.cfg", "node", None, "success", None, 16, 5, None, (), "small")
BROKEN = Entry(
    "M", "M.cfg", "node", None, "safety failure", "SmallInv", None, None, 3, ("sglang#1",), "small"
)


def _found(entry: Entry, *, steps: int = 3, name: str = "SmallInv") -> Outcome:
    behaviour = Behaviour(tuple(Step("", {}) for _ in range(steps + 1)))
    return Outcome("M", entry.result, name, 16, 30, 5, 0.1, behaviour)


def test_what_the_manifest_says_passes() -> None:
    assert mismatches(ENTRY, _found(ENTRY)) == []
    assert mismatches(BROKEN, _found(BROKEN)) == []


def test_each_count_that_is_off_is_named() -> None:
    wrong = Outcome("M", "success", "", 17, 30, 6, 0.1, Behaviour(()))
    assert mismatches(ENTRY, wrong) == ["distinct is 17, expected 16", "depth is 6, expected 5"]


def test_a_toggle_that_finds_nothing_or_something_else_is_named() -> None:
    nothing = Outcome("M", "success", "", 16, 30, 5, 0.1, Behaviour(()))
    assert mismatches(BROKEN, nothing)[0] == "result is success, expected safety failure"
    assert mismatches(BROKEN, _found(BROKEN, name="OtherInv")) == ["property is OtherInv, expected SmallInv"]
    assert mismatches(BROKEN, _found(BROKEN, steps=4)) == ["counterexample is 4, expected 3"]


@pytest.mark.parametrize("text", ["{", "[{}]", '[{"module": "M", "cfg": "M.cfg", "result": "fine"}]'])
def test_a_malformed_manifest_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(TlcError, match=r"manifest\.json: malformed"):
        load_manifest(tmp_path)


def test_a_missing_manifest_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TlcError, match=r"manifest\.json: No such file"):
        load_manifest(tmp_path)


def test_every_cfg_is_in_the_manifest_and_every_entry_has_its_files() -> None:
    entries = load_manifest(tla_dir())
    listed = {entry.cfg for entry in entries.values()}
    there = {path.name for path in tla_dir().glob("MC*.cfg")}
    assert listed == there
    assert all((tla_dir() / f"{entry.module}.tla").is_file() for entry in entries.values())


@pytest.mark.tlc
def test_models_are_checked_beside_each_other_and_one_without_a_verdict_stops_none(
    tools: Tools, counter: Path
) -> None:
    (counter / "Good.cfg").write_text("SPECIFICATION Spec\n")
    (counter / "Bad.cfg").write_text("SPECIFICATION Nope\n")
    expected = {"module": "Counter", "result": "success", "distinct": 16, "depth": 5, "runtime": "small"}
    models = [{**expected, "cfg": name} for name in ("Good.cfg", "Bad.cfg")]
    (counter / "manifest.json").write_text(json.dumps({"models": models}))
    told: list[str] = []
    results = {
        r.entry.name: r for r in run_all(tools, counter, list(load_manifest(counter).values()), told.append)
    }
    assert results["Good"].as_expected
    assert results["Bad"].outcome is None
    assert "2 of 2 models done" in told


SMALL = ("MCNode", "MCNode_live_unfair", "MCRanks_bug_clock_pacing", "MCAdmission_bug_ignores_interval")


@pytest.mark.tlc
def test_some_models_of_every_kind_are_as_the_manifest_says(tools: Tools) -> None:
    entries = load_manifest(tla_dir())
    for result in run_all(tools, tla_dir(), [entries[name] for name in SMALL]):
        assert result.as_expected, (result.entry.name, result.problems)
