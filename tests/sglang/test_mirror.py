"""A lifecycle that is told another one's events decides as that one did, and says where it does not."""

import random
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.runtime import Anchor, AttemptKey, EventLog, HiCacheLifecycle, Line, read_log
from hicache_fsm.sglang.mirror import Mirror
from hicache_fsm.sglang.sink import Sink

PROFILE = "sglang-0.5.23"


def engine(log: Path) -> HiCacheLifecycle:
    """What stands in for an engine here: a lifecycle of its own, which writes an event log."""
    return HiCacheLifecycle(
        PROFILE, pool_tokens=2048, max_context_len=1024, page_size=16, interval=2, max_attempts=2,
        log=EventLog(log),
    )  # fmt: skip


def live(life: HiCacheLifecycle, seed: int, passes: int = 60) -> None:
    """Requests that come, ask, miss, load, run, are retracted, and go, each as the machine allows."""
    draw = random.Random(seed)
    waiting: list[AttemptKey] = []
    running: list[AttemptKey] = []
    for now in range(passes):
        for key in life.begin_pass():
            life.issue(key, tokens=96)
        if draw.random() < 0.7:
            key = life.enqueue(f"r{now}", 96)
            waiting.append(key)
            asks = draw.random() < 0.8
            anchor = Anchor(f"node {now}", draw.choice([48, 900]))
            life.issue(key, asks=asks, why="" if asks else "too_short", tokens=96, anchor=anchor)
        for key in list(waiting):
            op, state = life.operation(key), life.state(key)
            match draw.choice(["wait", "answer", "answer", "leave", "cut"]):
                case "answer" if state in ("probing", "retrying") and op is not None:
                    if draw.random() < 0.5:
                        life.missed(key, op)
                    else:
                        life.hit(key, op, draw.choice([48, 96]), 96)
                case "answer" if state == "transferring" and op is not None:
                    life.loaded(key, op) if draw.random() < 0.7 else life.failed(key, op)
                case "leave" if op is None and draw.random() < 0.5:
                    life.admit(key)
                    running.append(key)
                    waiting.remove(key)
                case "leave" if draw.random() < 0.2:
                    life.abort(key)
                    waiting.remove(key)
                case "cut" if op is not None and draw.random() < 0.2:
                    life.cut(key)
        if running and draw.random() < 0.5:
            key = running.pop()
            if draw.random() < 0.6:
                life.finish(key)
            elif again := life.retract(key, draw.choice(["retracted", "preempted"])):
                waiting.append(again)
                life.issue(again, tokens=96)
    life.close()


def told(mirror: Mirror, log: Path) -> Mirror:
    """Tell the mirror the log, as the plugin would, with the sweep at the beginning of each pass."""
    for line in read_log(log):
        if line.kind == "header":
            mirror.engine({"constants": {"interval": 2, "max_attempts": 2}, **line.data})
        elif line.kind == "event":
            while mirror.life.now < line.pass_ and not mirror.lost:
                mirror.begin_pass(None)
            tell(mirror, line)
    return mirror


def tell(mirror: Mirror, line: Line) -> None:
    members: dict[str, Any] = {
        name: value for name, value in line.data.items() if name not in ("pass", "seq")
    }
    mirror.transition(line.pass_, line.machine, line.event, line.rid or None, members)


def test_a_mirror_is_a_sink() -> None:
    sink: Sink = Mirror()
    assert sink is not None


@pytest.mark.parametrize("seed", range(6))
def test_what_one_lifecycle_did_another_decides_alike(tmp_path: Path, seed: int) -> None:
    live(engine(tmp_path / "log.jsonl"), seed)
    mirror = told(Mirror(), tmp_path / "log.jsonl")
    assert mirror.differences == []
    assert mirror.counts["re-issues"] >= 5
    assert mirror.counts["comparisons"] >= 60


class Later(Mirror):
    """Retries a pass later than the engine."""

    def engine(self, header: Any) -> None:
        constants = {**header["constants"], "interval": header["constants"]["interval"] + 1}
        super().engine({**header, "constants": constants})


def test_a_lifecycle_that_retries_later_is_told_apart(tmp_path: Path) -> None:
    live(engine(tmp_path / "log.jsonl"), seed=0)
    first = told(Later(), tmp_path / "log.jsonl").differences[0]
    assert "offer to" in first or "the engine did what the lifecycle refuses" in first


def test_a_refused_event_ends_the_following_and_so_does_one_that_cannot_be_followed(tmp_path: Path) -> None:
    life = engine(tmp_path / "log.jsonl")
    life.issue(life.enqueue("r", 96))
    life.flush()
    life.close()
    mirror = told(Mirror(), tmp_path / "log.jsonl")
    assert mirror.lost
    assert mirror.differences == ["pass 0: flush of r is not followed"]
    refused = Mirror()
    refused.engine(next(read_log(tmp_path / "log.jsonl")).data)
    refused.transition(0, "prefetch", "enqueue", "r", {"attempt": 0, "tokens": 96})
    refused.transition(0, "prefetch", "done", "r", {"op": 1, "tokens": 96})
    assert refused.lost
    assert "the engine did what the lifecycle refuses" in refused.differences[0]
