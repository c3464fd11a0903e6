"""Each rule of replay, on a log of a few lines."""

import json
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.replay import Verdict, judge_file
from hicache_fsm.runtime.logread import LogError
from hicache_fsm.spec import load_spec

HEADER = {
    "kind": "header",
    "schema": 1,
    "source": "test",
    "profile": "recommended",
    "constants": {"interval": 2, "max_attempts": 1},
    "mode": "buffer_only",
    "threshold_tokens": 4,
    "pin_cap_tokens": 10,
}


def event(name: str, pass_: int = 0, machine: str = "prefetch", **members: Any) -> dict[str, Any]:
    return {"pass": pass_, "machine": machine, "event": name, "rid": "r", "attempt": 0, **members}


ENQUEUE = event("enqueue")
ISSUE = event("issue", op=1, facts={"asks": True})
MISS = event("miss", op=1, why="absent")


def judged(tmp_path: Path, *lines: dict[str, Any], **header: Any) -> Verdict:
    path = tmp_path / "log.jsonl"
    numbered = [{"seq": seq, **line} for seq, line in enumerate([{**HEADER, **header}, *lines])]
    path.write_text("".join(json.dumps(line) + "\n" for line in numbered))
    return judge_file(load_spec(), path)


def rules(verdict: Verdict) -> list[str]:
    return [violation.rule for violation in verdict.violations]


def sweep(pass_: int, **members: Any) -> dict[str, Any]:
    return event("sweep", pass_, facts={"head_exempt": False, "asks": True}, **members)


def test_a_paced_retry_that_is_due_is_accepted(tmp_path: Path) -> None:
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, MISS, sweep(0), sweep(2, op=2))) == []


def test_a_retry_one_pass_early_breaks_paced(tmp_path: Path) -> None:
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, MISS, sweep(0), sweep(1, op=2))) == ["paced"]


def test_an_interval_of_0_drops_each_marker_with_the_next_sweep_in_0_5_23(tmp_path: Path) -> None:
    off = {"profile": "sglang-0.5.23", "constants": {"interval": 0}}
    swept = event("sweep", facts={"head_exempt": False}, seen={"armed": False})
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, MISS, swept, **off)) == []
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, MISS, {**swept, "seen": {"armed": True}}, **off)) != []


def test_a_retry_beyond_the_budget_breaks_attempts_bounded(tmp_path: Path) -> None:
    spent = (ENQUEUE, ISSUE, MISS, sweep(0), sweep(2, op=2), event("miss", 2, op=2))
    assert rules(judged(tmp_path, *spent, event("lose_match", 3, op=3))) == ["attempts-bounded"]


def test_a_completion_of_another_operation_breaks_one_in_flight_39318(tmp_path: Path) -> None:
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, event("miss", op=7))) == ["one-in-flight"]


def test_an_orphans_answer_taken_for_the_newer_question_breaks_one_in_flight_39318(tmp_path: Path) -> None:
    lines = (ENQUEUE, ISSUE, event("cut"), sweep(0), sweep(2, op=2), event("stale", 3, "operation", op=1))
    verdict = judged(tmp_path, *lines)
    assert rules(verdict) == ["one-in-flight"]
    assert not verdict.holds


def test_the_same_is_a_known_finding_under_the_upstream_profile(tmp_path: Path) -> None:
    lines = (ENQUEUE, ISSUE, event("cut"), sweep(0), sweep(2, op=2), event("stale", 3, "operation", op=1))
    verdict = judged(tmp_path, *lines, profile="sglang-0.5.23")
    assert rules(verdict) == ["one-in-flight"]
    assert verdict.holds


def test_what_an_attempt_spent_that_is_followed_no_more_is_taken_from_the_engine(tmp_path: Path) -> None:
    again = event("enqueue", 3, again="retracted") | {"attempt": 1, "seen": {"spent": 1}}
    unknown = event("miss", 1, op=7, why="absent")
    lines = (ENQUEUE, ISSUE, unknown, event("admit", 2), event("retract", 3), again)
    assert len(rules(judged(tmp_path, *lines, profile="seed"))) == 1
    followed = (ENQUEUE, event("admit", 2), event("retract", 3), again)
    assert rules(judged(tmp_path, *followed, profile="seed")) == ["attempts-bounded"]


def test_a_marker_left_after_an_abort_breaks_marker_owned_16369(tmp_path: Path) -> None:
    left = event("abort", seen={"armed": True}, why="queue_limit")
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, MISS, left)) == ["marker-owned"]


def test_an_entry_left_after_an_abort_breaks_no_residue_9874(tmp_path: Path) -> None:
    left = event("abort", seen={"entry": True}, why="client")
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, left)) == ["no-residue"]


def test_a_pin_that_outlives_its_holder_breaks_pin_owned(tmp_path: Path) -> None:
    pin = event("pin", machine="pin", why="locked", tokens=3, facts={"anchored": True})
    later = event("enqueue", 1, rid="s")
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, pin, event("abort"), later)) == ["pin-owned"]


def test_a_pin_over_the_cap_breaks_pin_cap(tmp_path: Path) -> None:
    pin = event("pin", machine="pin", why="locked", tokens=11, facts={"anchored": True})
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, pin)) == ["pin-cap"]


def test_a_second_pin_by_the_same_holder_changes_nothing_36227(tmp_path: Path) -> None:
    pin = event("pin", machine="pin", why="locked", tokens=6, facts={"anchored": True})
    again = event("pin", machine="pin", why="held", tokens=6, seen={"pinned_tokens": 6})
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, pin, again)) == []


def test_a_release_of_a_pin_never_taken_breaks_pin_owned(tmp_path: Path) -> None:
    assert rules(judged(tmp_path, ENQUEUE, event("unpin", machine="pin", tokens=3))) == ["pin-owned"]


def test_an_armed_attempt_that_asked_nothing_breaks_asked_armed_40042(tmp_path: Path) -> None:
    short = event("issue", facts={"asks": False}, why="too_short")
    assert rules(judged(tmp_path, ENQUEUE, short, profile="seed")) == ["asked-armed"]


def test_a_decline_arms_nothing_under_recommended_40042(tmp_path: Path) -> None:
    short = event("issue", facts={"asks": False}, why="too_short", seen={"armed": False})
    assert rules(judged(tmp_path, ENQUEUE, short)) == []


def test_an_illegal_event_names_what_would_be_legal(tmp_path: Path) -> None:
    verdict = judged(tmp_path, ENQUEUE, event("done", op=1))
    assert rules(verdict) == ["legal"]
    assert "legal: abandon, abort, admit" in verdict.violations[0].message


def test_a_missing_fact_is_asked_for(tmp_path: Path) -> None:
    verdict = judged(tmp_path, ENQUEUE, ISSUE, event("hit", op=1, tokens=8))
    assert rules(verdict) == ["facts"]
    assert "room" in verdict.violations[0].message


def test_a_hit_below_the_threshold_is_refused(tmp_path: Path) -> None:
    hit = event("hit", op=1, tokens=3, facts={"room": True})
    assert rules(judged(tmp_path, ENQUEUE, ISSUE, hit)) == ["threshold"]


def test_a_write_acknowledged_twice_breaks_belief_evidence(tmp_path: Path) -> None:
    write = {"pass": 0, "machine": "belief", "event": "write", "pool": "kv", "pages": 2}
    stored = {**write, "event": "stored"}
    assert rules(judged(tmp_path, write, stored, stored)) == ["belief-evidence"]


def test_an_idle_end_with_something_left_breaks_no_residue(tmp_path: Path) -> None:
    trailer = {"kind": "trailer", "pass": 1, "idle": True, "residue": {"markers": 1, "holds": 0}}
    assert rules(judged(tmp_path, trailer)) == ["no-residue"]


def test_a_log_without_a_trailer_is_judged_and_said_to_be_open(tmp_path: Path) -> None:
    assert not judged(tmp_path, ENQUEUE).closed


@pytest.mark.parametrize("header", [{"profile": "nobody's"}, {"constants": {"intervall": 2}}])
def test_an_unknown_profile_or_constant_is_one_line(tmp_path: Path, header: dict[str, Any]) -> None:
    with pytest.raises(LogError, match=r"log\.jsonl:1: unknown"):
        judged(tmp_path, **header)
