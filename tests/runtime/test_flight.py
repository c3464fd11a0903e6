"""The flight recorder: the log kept in memory, the same lines when somebody wants to see them."""

import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from runtime_support import ANCHOR, SPEC, asked, behind_a_head, lifecycle
from typer.testing import CliRunner

from hicache_fsm.cli.app import app
from hicache_fsm.replay import Verdict, judge_file
from hicache_fsm.runtime import (
    AttemptKey,
    Completion,
    EventLog,
    FlightRecorder,
    HiCacheLifecycle,
    IllegalTransition,
    LogError,
    read_log,
)


def lived(log: Any, seed: int = 0, profile: str = "recommended", steps: int = 150) -> HiCacheLifecycle:
    """Random lives with answers in time and late, retries, pins, retractions and writes, all legal."""
    life = lifecycle(profile, log=log, max_attempts=3, pool_tokens=512, max_context_len=64)
    random = Random(seed)
    running: list[AttemptKey] = []
    waiting: list[AttemptKey] = []
    for step in range(steps):
        rid = f"r{step}"
        waiting.append(life.enqueue(rid, 96))
        for key in [waiting[-1], *life.begin_pass()]:
            life.issue(key, anchor=ANCHOR if random.random() < 0.5 else None)
        for op in [*life._core.ledger.operations.values()][-6:]:
            if life.operation(op.attempt.key) == op.number and life.state(op.attempt.key) == "parked":
                life.unparked(op.attempt.key)
                continue
            event = random.choice(["done", "fail"] if op.pages else ["hit", "miss"])
            life.post(Completion(op.number, event, 64 if event == "hit" else 0, 96))  # type: ignore[arg-type]
        life.begin_pass()
        if random.random() < 0.8:
            key = waiting.pop(random.randrange(len(waiting)))
            if life.state(key) in ("queued", "missed", "pending", "exhausted", "loaded"):
                life.admit(key)
                running.append(key)
            else:
                life.abort(key)
        if running and random.random() < 0.6:
            key = running.pop(random.randrange(len(running)))
            again = life.retract(key) if random.random() < 0.4 else None
            waiting += [again] if again is not None else []
            if again is None:
                life.finish(key)
        life.write("kv", [f"p{step}"])
        life.stored("kv", [f"p{step - random.randrange(2)}"] if step else [])
    return life


def judged(path: Path) -> Verdict:
    return judge_file(SPEC, path, allow_truncated=True)


@pytest.mark.parametrize("profile", ["recommended", "sglang-0.5.23", "seed"])
def test_a_recorder_that_lost_nothing_writes_the_bytes_of_the_log(tmp_path: Path, profile: str) -> None:
    log, box = tmp_path / "log.jsonl", tmp_path / "box.jsonl"
    lived(EventLog(log, version="9"), profile=profile).close()
    lived(FlightRecorder(box, version="9"), profile=profile).close()
    assert box.read_bytes() == log.read_bytes()
    assert judge_file(SPEC, box).closed


def test_a_tail_has_the_newest_events_and_says_that_it_is_one(tmp_path: Path) -> None:
    log, box = tmp_path / "log.jsonl", tmp_path / "box.jsonl"
    lived(EventLog(log)).close()
    recorder = FlightRecorder(box, events=100)
    lived(recorder).close()
    header, *lines = [json.loads(line) for line in box.read_text().splitlines()]
    whole = [json.loads(line) for line in log.read_text().splitlines()]
    assert (header.pop("tail"), header) == (True, whole[0])
    assert [line.pop("seq") for line in lines] == list(range(1, 102))
    assert lines == [{name: told for name, told in line.items() if name != "seq"} for line in whole[-101:]]
    assert len(recorder) == 100


def test_exactly_as_many_events_as_it_keeps_are_no_tail(tmp_path: Path) -> None:
    life = lifecycle(log=FlightRecorder(tmp_path / "box.jsonl", events=2))
    life.enqueue("a", 16)
    life.enqueue("b", 16)
    life.close()
    assert [line.rid for line in read_log(tmp_path / "box.jsonl")] == ["", "a", "b", ""]


def test_a_reader_of_whole_logs_refuses_a_tail_in_one_line(tmp_path: Path) -> None:
    box = tmp_path / "box.jsonl"
    lived(FlightRecorder(box, events=50)).close()
    with pytest.raises(LogError) as refused:
        list(read_log(box))
    said = (
        f"{box}:1: a flight recorder's tail: what came before it is lost; "
        "`replay --allow-truncated` judges the attempts that begin in it"
    )
    assert str(refused.value) == said
    assert [line.kind for line in read_log(box, allow_tail=True)][:2] == ["header", "event"]


@pytest.mark.parametrize("seed", range(2))
def test_any_tail_of_a_sound_log_is_judged_sound(tmp_path: Path, seed: int) -> None:
    box = tmp_path / "box.jsonl"
    recorder = FlightRecorder(box)
    lived(recorder, seed).close()
    whole = judged(box)
    assert whole.violations == []
    assert min(whole.counts[what] for what in ("retries", "loads", "aborts", "retractions", "pins")) > 5
    header, *lines = box.read_text().splitlines()
    for cut in range(1, len(lines), 131):
        tail = [json.loads(line) for line in (header, *lines[cut:])]
        tail[0]["tail"] = True
        box.write_text("".join(json.dumps({**line, "seq": n}) + "\n" for n, line in enumerate(tail)))
        verdict = judged(box)
        assert verdict.violations == [], cut
        assert verdict.closed


@pytest.mark.parametrize("events", range(2, 11))
def test_a_tail_tells_the_attempts_of_one_id_apart(tmp_path: Path, events: int) -> None:
    """What still comes of an older attempt, as its orphan's answer, says nothing about the newer one."""
    box = tmp_path / "box.jsonl"
    recorder = FlightRecorder(box, events=events)
    life = lifecycle(log=recorder, on_illegal="observe")
    first = life.enqueue("r", 96)
    question = asked(life, first)
    life.abort(first)
    second = life.enqueue("r", 96)
    life.unparked(first)
    life.missed(first, question)
    life.missed(second, asked(life, second))
    life.missed(first, question)
    life.abort(second)
    asked(life, life.enqueue("r", 96))
    recorder.dump(box)
    assert judged(box).violations == []


def test_a_corrupted_tail_is_found_in_an_attempt_that_began_in_it(tmp_path: Path) -> None:
    box = tmp_path / "box.jsonl"
    lived(FlightRecorder(box, events=400)).close()
    lines = [json.loads(line) for line in box.read_text().splitlines()]
    begun = {line["rid"] for line in lines if line.get("event") == "enqueue"}
    place = next(
        n for n, line in enumerate(lines) if line.get("event") == "hit" and line["rid"] in begun and n > 200
    )
    lines[place]["seen"]["spent"] += 1
    box.write_text("".join(json.dumps(line) + "\n" for line in lines))
    verdict = judged(box)
    assert [(one.line, one.rule) for one in verdict.violations] == [(place + 1, "attempts-bounded")]
    assert verdict.counts["attempts passed over"] > 0


def test_nothing_is_written_while_nothing_is_wrong(tmp_path: Path) -> None:
    life = lived(FlightRecorder(tmp_path / "box.jsonl"), steps=20)
    assert list(tmp_path.iterdir()) == []
    life.close()
    assert (tmp_path / "box.jsonl").exists()


def test_the_first_illegal_event_writes_what_led_there_and_nothing_overwrites_it(tmp_path: Path) -> None:
    box = tmp_path / "box.jsonl"
    life = lifecycle(log=FlightRecorder(box))
    key = life.enqueue("r", 96)
    with pytest.raises(IllegalTransition):
        life.unparked(key)
    told = box.read_text()
    assert [line.event for line in read_log(box)] == ["", "enqueue", "unpark"]
    with pytest.raises(IllegalTransition):
        life.unparked(key)
    life.close()
    assert box.read_text() == told


def test_the_first_violation_writes_what_led_there(tmp_path: Path) -> None:
    box = tmp_path / "box.jsonl"
    life = lifecycle("seed", log=FlightRecorder(box))
    life.issue(life.enqueue("r", 16), asks=False, why="too_short")
    assert [line.event for line in read_log(box)] == ["", "enqueue", "issue"]


def test_it_is_written_on_demand_as_often_as_asked(tmp_path: Path) -> None:
    recorder = FlightRecorder()
    life = lifecycle(log=recorder)
    asked(life, behind_a_head(life))
    for name, events in (("one", 4), ("two", 5)):
        recorder.dump(tmp_path / name)
        assert len(list(read_log(tmp_path / name))) == 1 + events
        life.enqueue(f"after {name}", 16)
    life.close()


def test_another_thread_may_dump_while_the_scheduler_runs(tmp_path: Path) -> None:
    begun, over = threading.Event(), threading.Event()

    class Heard(FlightRecorder):
        def flush(self) -> None:
            begun.set()

    recorder = Heard(events=300)

    def dump() -> int:
        number = 0
        begun.wait(60)
        while not (number and over.is_set()):
            number += 1
            recorder.dump(tmp_path / "box.jsonl")
            assert judged(tmp_path / "box.jsonl").violations == []
        return number

    with ThreadPoolExecutor(1) as pool:
        dumped = pool.submit(dump)
        lived(recorder, steps=60)
        over.set()
    assert dumped.result() > 0


def test_a_dump_while_the_lifecycle_closes_has_no_trailer_without_the_last_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = FlightRecorder()
    life = lifecycle(log=recorder)

    def opened(path: Path) -> EventLog:
        life.enqueue("late", 96)
        life.close()
        return EventLog(path)

    monkeypatch.setattr(recorder, "_open", opened)
    life.enqueue("r", 96)
    recorder.dump(tmp_path / "box.jsonl")
    assert [line.rid or line.kind for line in read_log(tmp_path / "box.jsonl")] == ["header", "r"]


def test_a_recorder_that_heard_nothing_closes_without_a_file(tmp_path: Path) -> None:
    FlightRecorder(tmp_path / "box.jsonl").close()
    assert not (tmp_path / "box.jsonl").exists()


def test_a_place_that_cannot_be_written_is_told_and_the_engine_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = lifecycle(log=FlightRecorder(tmp_path / "none" / "box.jsonl"), on_illegal="observe")
    with caplog.at_level(logging.ERROR):
        life.unparked(life.enqueue("r", 96))
        life.close()
    assert [record.message.split(":")[0] for record in caplog.records if record.levelno == logging.ERROR] == [
        f"flight recorder cannot write {tmp_path}/none/box.jsonl"
    ]


def test_a_recorder_that_keeps_nothing_or_heard_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keeps nothing"):
        FlightRecorder(events=0)
    with pytest.raises(ValueError, match="no lifecycle has this flight recorder"):
        FlightRecorder().dump(tmp_path / "x")


def test_replay_judges_a_dump_from_the_command_line(tmp_path: Path) -> None:
    box = tmp_path / "box.jsonl"
    lived(FlightRecorder(box, events=300)).close()
    refused = CliRunner().invoke(app, ["replay", str(box)])
    assert (refused.exit_code, refused.output.count("\n")) == (2, 1)
    assert CliRunner().invoke(app, ["replay", "--allow-truncated", str(box)]).exit_code == 0
