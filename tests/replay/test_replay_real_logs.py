"""The logs of real SGLang runs hold; a corrupted event of them is found, with its line, rule and history."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from corruption import KINDS, Lines, dump

from hicache_fsm.check import shipped_logs
from hicache_fsm.replay import judge_file
from hicache_fsm.spec import Spec, load_spec

PLACES = 50
LOGS = {path.name: path for path in shipped_logs()}


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec()


def _lines(path: Path) -> Lines:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _corruptions(lines: Lines) -> Iterator[tuple[str, int, Lines]]:
    """Fifty random places, each with a random kind that applies there; every kind at least once."""
    rng = random.Random(36227)
    places = [place for place, line in enumerate(lines[:-2]) if "rid" in line]
    kinds = [*KINDS, *(rng.choice(KINDS) for _ in range(PLACES - len(KINDS)))]
    for kind in kinds:
        corrupted = None
        while corrupted is None:
            place = rng.choice(places)
            corrupted = kind(lines, place)
        yield kind.__name__, place, corrupted


def test_both_versions_ship_a_log() -> None:
    assert {judge_file(load_spec(), path).version for path in LOGS.values()} == {"0.5.19", "0.5.23"}


@pytest.mark.parametrize("name", LOGS)
def test_a_real_log_breaks_no_rule(spec: Spec, name: str) -> None:
    verdict = judge_file(spec, LOGS[name])
    assert verdict.unexpected == []
    assert verdict.closed


@pytest.mark.parametrize("name", LOGS)
def test_a_real_log_is_large_and_shows_every_part_of_the_lifecycle(spec: Spec, name: str) -> None:
    verdict = judge_file(spec, LOGS[name])
    assert verdict.events >= 2000
    for kind in ("misses", "retries", "pins", "pins refused", "loads", "aborts", "retractions", "evictions"):
        assert verdict.counts[kind] > 0, kind
    assert verdict.states["parked"] > 0


@pytest.mark.parametrize("name", LOGS)
def test_a_state_is_reached_or_named_with_what_it_needs(spec: Spec, name: str) -> None:
    verdict = judge_file(spec, LOGS[name])
    for state in spec.machines["prefetch"].states:
        assert verdict.states[state] or verdict.not_reached[state].startswith("needs ")


@pytest.mark.parametrize("name", LOGS)
def test_one_corrupted_event_is_found_with_line_rule_and_history(
    spec: Spec, name: str, tmp_path: Path
) -> None:
    for kind, place, corrupted in _corruptions(_lines(LOGS[name])):
        path = tmp_path / "corrupted.jsonl"
        path.write_text(dump(corrupted))
        verdict = judge_file(spec, path)
        assert not verdict.holds, f"{kind} in line {place + 1} went unseen"
        first = verdict.unexpected[0]
        assert first.line >= place, f"{kind} in line {place + 1} is blamed on line {first.line}"
        assert first.rule
        assert first.message
        told = any(violation.history for violation in verdict.unexpected)
        assert told or kind == "another_request", f"{kind} in line {place + 1} shows no history"
