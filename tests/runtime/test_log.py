"""The event log: written pass by pass, read strictly (docs/event-log.md)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runtime_support import asked, behind_a_head, lifecycle, loaded, passes_until_offered, transferring

from hicache_fsm.replay import judge
from hicache_fsm.runtime import (
    AttemptKey,
    Completion,
    EventLog,
    IllegalTransition,
    LogError,
    TruncatedLog,
    read_log,
)
from hicache_fsm.spec import load_spec

HEADER = '{"seq":0,"kind":"header","schema":1,"profile":"seed"}\n'
EVENT = '{"seq":1,"pass":0,"machine":"prefetch","event":"enqueue","rid":"r","attempt":0}\n'


def played(path: Path, profile: str = "recommended", **options: Any) -> list[dict[str, Any]]:
    """A short life in a log, with a retry, a partial hit, an orphan, a retraction and a discard."""
    log = options.pop("log", None) or EventLog(path, version="9.9", threshold_tokens=16)
    life = lifecycle(profile, log=log, **options)
    key = behind_a_head(life, 'r"é')
    life.post(Completion(asked(life, key), "miss"))
    passes_until_offered(life, key)
    life.loaded(key, life.operation(key) or 0) if life.hit(key, life.issue(key) or 0, 32, 96) else None
    other = life.enqueue("other", 96)
    late = transferring(life, other)
    life.abort(other, "timeout")
    life.post(Completion(late, "fail"))
    life.begin_pass()
    life.write("kv", ["p0", "p1"])
    life.stored("kv", ["p0", "p1"])
    life.discard("kv", ["p0", "p1"], 1, [])
    life.admit(key)
    again = life.retract(key)
    assert again is not None
    life.flush()
    life.detach()
    life.abort(again)
    life.abort(("head", 0))  # type: ignore[arg-type]
    life.close()
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_log_has_header_trailer_and_numbers_without_a_gap(tmp_path: Path) -> None:
    lines = played(tmp_path / "log.jsonl")
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    assert lines[0]["kind"] == "header"
    assert (lines[0]["version"], lines[0]["constants"]["interval"], lines[0]["pin_cap_tokens"]) == (
        "9.9",
        2,
        1024,
    )
    assert lines[-1]["kind"] == "trailer"
    assert lines[-1]["idle"]
    assert set(lines[-1]["residue"].values()) == {0}


@pytest.mark.parametrize("profile", ["recommended", "sglang-0.5.23", "seed"])
def test_what_the_runtime_logs_replay_finds_sound(tmp_path: Path, profile: str) -> None:
    path = tmp_path / "log.jsonl"
    played(path, profile)
    verdict = judge(load_spec(), read_log(path), str(path))
    assert verdict.violations == []
    assert verdict.closed


def test_an_upstream_finding_is_logged_so_that_replay_sees_it_39318(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle("sglang-0.5.23", log=EventLog(path))
    old_key = behind_a_head(life)
    old = asked(life, old_key)
    life.abort(old_key)
    asked(life, life.enqueue("r", 96))
    life.post(Completion(old, "miss"))
    life.begin_pass()
    life.close()
    verdict = judge(load_spec(), read_log(path), str(path))
    assert set(verdict.findings) == {"one-in-flight"}
    assert verdict.unexpected == []


def test_a_discard_logs_the_pages_it_keeps_36386(tmp_path: Path) -> None:
    line = next(line for line in played(tmp_path / "log.jsonl") if line.get("event") == "discard")
    assert (line["pages"], line["keep_pages"]) == (2, 1)


def test_seen_is_what_the_books_say_after_the_event(tmp_path: Path) -> None:
    lines = played(tmp_path / "log.jsonl")
    hit = next(line for line in lines if line.get("event") == "hit")
    assert hit["seen"] == {
        "entry": True,
        "armed": False,
        "hold": False,
        "spent": 1,
        "parked": False,
        "pinned_tokens": 64,
        "occupied_tokens": 32,
    }


def test_an_illegal_event_is_logged_as_such_and_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle(log=EventLog(path), on_illegal="observe")
    key = life.enqueue("r", 96)
    asked(life, key)
    life.admit(key)
    life.close()
    line = next(line for line in read_log(path) if line.data.get("illegal"))
    assert (line.machine, line.event, line.rid) == ("prefetch", "admit", "r")


def test_what_a_pass_logged_is_written_when_it_is_swept(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle(log=EventLog(path))
    life.enqueue("r", 96)
    assert path.read_text().count("\n") == 1
    life.begin_pass()
    assert path.read_text().count("\n") == 2


def test_an_illegal_event_is_written_at_once_with_all_before_it(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle(log=EventLog(path))
    key = life.enqueue("r", 96)
    assert key == AttemptKey("r", 0)
    with pytest.raises(IllegalTransition):
        life.unparked(key)
    assert path.read_text().count("\n") == 3


def test_a_violation_writes_all_before_it(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle("seed", log=EventLog(path))
    life.issue(life.enqueue("r", 16), asks=False, why="too_short")
    assert life.monitor is not None
    assert life.monitor.counts["asked-armed"] == 1
    assert path.read_text().count("\n") == 3


@pytest.mark.parametrize(("options", "kept"), [("", 2), (", buffered=False", 3)])
def test_a_process_that_dies_leaves_the_lines_of_its_last_whole_pass(
    tmp_path: Path, options: str, kept: int
) -> None:
    path = tmp_path / "log.jsonl"
    script = f"""
import os
from pathlib import Path
from hicache_fsm.runtime import EventLog, HiCacheLifecycle
log = EventLog(Path({str(path)!r}){options})
life = HiCacheLifecycle(pool_tokens=64, max_context_len=16, log=log)
life.enqueue("a", 16)
life.begin_pass()
life.enqueue("b", 16)
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    assert len(list(read_log(path, allow_truncated=True))) == kept


def test_lines_are_written_in_the_middle_of_a_pass_once_1024_are_pending(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle(log=EventLog(path))
    for number in range(1_023):
        life.enqueue(f"r{number}", 96)
    assert path.read_text().count("\n") == 1
    life.enqueue("last", 96)
    assert path.read_text().count("\n") == 1_025


def test_an_unbuffered_log_writes_each_line_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle(log=EventLog(path, buffered=False))
    life.enqueue("r", 96)
    assert path.read_text().count("\n") == 2


def test_all_ways_to_write_a_log_write_the_same_bytes(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in range(3)]
    for path, options in zip(paths, ({}, {"buffered": False}, {"sync": True}), strict=True):
        played(path, log=EventLog(path, version="9.9", threshold_tokens=16, **options))  # type: ignore[arg-type]
    assert len({path.read_bytes() for path in paths}) == 1


def test_sync_flushes_each_line_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    life = lifecycle(log=EventLog(tmp_path / "log.jsonl", sync=True))
    life.enqueue("r", 96)
    assert len(synced) == 2


@pytest.mark.parametrize("buffered", [True, False])
def test_a_log_that_cannot_be_written_stops_and_the_engine_goes_on(tmp_path: Path, buffered: bool) -> None:
    log = EventLog(tmp_path / "log.jsonl", buffered=buffered)
    life = lifecycle(log=log)
    key = life.enqueue("r", 96)
    log._file.close()
    asked(life, key)
    life.begin_pass()
    assert log.broken
    assert life.state(key) == "probing"
    asked(life, life.enqueue("other", 96))
    life.close()


def test_no_token_ids_and_no_text_reach_the_log(tmp_path: Path) -> None:
    known = {
        *(
            "seq",
            "pass",
            "machine",
            "event",
            "rid",
            "attempt",
            "facts",
            "op",
            "why",
            "tokens",
            "pages",
            "seen",
        ),
        *("wanted_tokens", "again", "pool", "keep_pages", "kind", "idle", "residue"),
    }
    for line in played(tmp_path / "log.jsonl")[1:]:
        assert set(line) <= known


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_line_has_its_fields_and_defaults(tmp_path: Path) -> None:
    header, event = read_log(written(tmp_path, HEADER + EVENT))
    assert (header.kind, event.kind, event.number, event.seq) == ("header", "event", 2, 1)
    assert (event.rid, event.attempt, event.op, event.why, event.tokens, event.facts) == (
        "r",
        0,
        0,
        "",
        0,
        {},
    )


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 0, "empty"),
        (b"\x1f\x8b\x08\x00\x00", 1, "binary"),
        (b"PK\x03\x04 zip", 1, "binary"),
        (HEADER.encode() + b'{"seq":1,"rid":"\xff"}\n' + EVENT.encode(), 2, "not UTF-8"),
        (HEADER + "nonsense\n" + EVENT, 2, "not JSON"),
        (HEADER + "[]\n" + EVENT, 2, "not a JSON object"),
        (HEADER.replace('"schema":1', '"schema":2'), 1, "schema 2"),
        (HEADER.replace('"profile":"seed"', '"profile":7'), 1, "names no profile"),
        (EVENT.replace('"seq":1', '"seq":0'), 1, "header is missing"),
        (HEADER + EVENT.replace('"seq":1', '"seq":3'), 2, "seq is 3, expected 1"),
        (HEADER + EVENT.replace('"seq":1', '"seq":true'), 2, "no whole number seq"),
        (HEADER + EVENT.replace('"prefetch"', '"prefetsch"'), 2, "unknown machine"),
        (HEADER + EVENT.replace('"enqueue"', '"enq"'), 2, "unknown event"),
        (HEADER + EVENT.replace('"pass":0', '"pass":"0"'), 2, "pass is '0'"),
        (HEADER + EVENT.replace('"pass":0,', ""), 2, "no pass"),
        (HEADER.replace('"schema":1', '"schema":1,"pin_cap_tokens":"x"'), 1, "pin_cap_tokens is 'x'"),
        (HEADER.replace('"schema":1', '"schema":1,"threshold_tokens":null'), 1, "threshold_tokens is None"),
        (HEADER + EVENT.replace('"pass":0', '"pass":0,"wanted_tokens":"x"'), 2, "wanted_tokens is 'x'"),
        (HEADER + EVENT.replace('"pass":0', '"pass":0,"keep_pages":null'), 2, "keep_pages is None"),
        (HEADER + EVENT.replace('"pass":0', '"pass":0,"seen":{"spent":null}'), 2, "seen.spent is None"),
        (HEADER + EVENT.replace('"pass":0', '"pass":0,"seen":{"pinned_tokens":"x"}'), 2, "seen.pinned"),
        (HEADER + '{"seq":1,"kind":"trailer","pass":0,"residue":[1]}\n', 2, r"residue is \[1\]"),
        (HEADER + HEADER.replace('"seq":0', '"seq":1'), 2, 'kind "header" after'),
        (HEADER + '{"seq":1,"kind":"trailer","pass":0}\n' + EVENT, 3, "follows the trailer"),
    ],
)
def test_a_log_that_cannot_be_judged_says_where_and_why(
    tmp_path: Path, content: str | bytes, line: int, reason: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(LogError, match=reason) as caught:
        list(read_log(path))
    assert (caught.value.path, caught.value.line) == (path, line)
    assert caught.value.mend
    assert not isinstance(caught.value, TruncatedLog)


def test_a_log_that_is_not_there_is_an_error_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be read"):
        list(read_log(tmp_path / "missing.jsonl"))


@pytest.mark.parametrize("cut", range(1, len(EVENT)))
def test_a_last_line_that_is_cut_anywhere_is_a_truncated_log(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, HEADER + EVENT[:cut])
    with pytest.raises(TruncatedLog, match="truncated"):
        list(read_log(path))
    assert [line.kind for line in read_log(path, allow_truncated=True)] == ["header"]


def test_a_last_line_with_a_newline_but_not_whole_is_truncated_too(tmp_path: Path) -> None:
    with pytest.raises(TruncatedLog):
        list(read_log(written(tmp_path, HEADER + EVENT[:20] + "\n")))


def test_a_header_that_is_not_whole_leaves_nothing_to_judge(tmp_path: Path) -> None:
    with pytest.raises(TruncatedLog):
        list(read_log(written(tmp_path, HEADER[:20]), allow_truncated=True))


def test_a_loaded_hold_is_seen_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    life = lifecycle(log=EventLog(path))
    loaded(life, life.enqueue("r", 96))
    life.close()
    *_, done, trailer = read_log(path)
    assert (done.event, done.seen["hold"]) == ("done", True)
    assert trailer.data["residue"]["holds"] == 1
