"""Whoever listens hears everything that the log says, in the same order."""

from pathlib import Path
from typing import Any

from runtime_support import ANCHOR, SPEC, asked, behind_a_head, lifecycle, passes_until_offered, transferring

from hicache_fsm.runtime import EventLog, IllegalTransition, Listener, read_log


class Told(Listener):
    """Writes down who was told what."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.lowered = 0
        self.passes: list[int] = []

    def queued(self, now: int, attempt: Any, again: str) -> None:
        self.heard.append("prefetch.enqueue")

    def stepped(self, now: int, attempt: Any, moment: Any, row: Any, op: Any) -> None:
        self.heard.append(f"prefetch.{row.transition.event}")

    def left(self, now: int, attempt: Any, event: str) -> None:
        self.heard.append(f"prefetch.{event}")

    def pinned(self, now: int, plan: Any) -> None:
        self.heard.append("pin.pin")

    def unpinned(self, now: int, attempt: Any, event: str, tokens: int) -> None:
        self.heard.append(f"pin.{event}")

    def ended(self, now: int, op: Any, event: str) -> None:
        self.heard.append(f"operation.{event}")

    def node(self, now: int, event: str, node: Any, tokens: int) -> None:
        self.heard.append(f"node.{event}")

    def believed(self, now: int, event: str, pool: str, pages: int, lowered: int) -> None:
        self.heard.append(f"belief.{event}")
        self.lowered += lowered

    def refused(self, now: int, machine: str, event: str) -> None:
        self.heard.append(f"{machine}.{event}")

    def passed(self, now: int) -> None:
        self.passes.append(now)


def test_a_listener_hears_every_line_of_the_log(tmp_path: Path) -> None:
    path, told = tmp_path / "log.jsonl", Told()
    life = lifecycle(log=EventLog(path), on_illegal="observe")
    life.listen(told)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    passes_until_offered(life, key)
    life.loaded(key, transferring_again(life, key))
    other = life.enqueue("other", 96)
    late = transferring(life, other)
    life.abort(other)
    life.loaded(other, late)
    life.admit(key)
    life.shrink(key)
    again = life.retract(key)
    assert again is not None
    life.evict("elsewhere")
    life.write("kv", ["a", "b"])
    life.stored("kv", ["a", "b"])
    life.discard("kv", ["a", "b"], 1, [])
    now = life.now
    life.close()
    lines = [line for line in read_log(path, spec=SPEC) if line.kind == "event"]
    assert told.heard == [f"{line.machine}.{line.event}" for line in lines]
    assert told.passes == list(range(1, now + 1))
    assert told.lowered == 1


def transferring_again(life: Any, key: Any) -> int:
    op = life.issue(key, anchor=ANCHOR)
    life.hit(key, op, 96, 96)
    return int(op)


def test_a_listener_alone_is_told_without_a_log_or_a_monitor() -> None:
    told = Told()
    life = lifecycle(monitor=False)
    life.listen(told)
    key = life.enqueue("r", 96)
    life.issue(key)
    try:
        life.admit(key)
    except IllegalTransition:
        told.heard.append("raised")
    assert told.heard == ["prefetch.enqueue", "prefetch.issue", "prefetch.admit", "raised"]
    assert life.states() == {"probing": 1}
