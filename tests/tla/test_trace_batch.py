"""Event logs judged by TLC: what replay accepts it accepts, what is corrupted it rejects at the same line."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hicache_fsm.check import shipped_logs
from hicache_fsm.replay import judge_file
from hicache_fsm.runtime import Anchor, EventLog, HiCacheLifecycle
from hicache_fsm.spec import Spec
from hicache_fsm.tlc import Tools
from hicache_fsm.tlc.traces import check_logs

sys.path.append(str(Path(__file__).parent.parent / "replay"))
from corruption import KINDS, Lines, dump

pytestmark = pytest.mark.tlc

BEGINNING = 500
"""Lines of a real log that are corrupted: enough for every kind of event, few enough for one JVM."""

PLACES = (0.3, 0.7)
"""Where in those lines each kind of corruption is tried, as a share."""


def _corrupted(folder: Path) -> Iterator[Path]:
    for log in shipped_logs():
        with gzip.open(log, "rt", encoding="utf-8") as file:
            lines: Lines = [json.loads(line) for line, _ in zip(file, range(BEGINNING), strict=False)]
        for kind in KINDS:
            for share in PLACES:
                places = range(int(share * len(lines)), len(lines) - 2)
                found = next((c for place in places if (c := kind(lines, place)) is not None), None)
                if found is not None:
                    path = folder / f"{log.name}-{kind.__name__}-{share}.jsonl"
                    path.write_text(dump(found))
                    yield path


def test_the_shipped_logs_are_accepted_in_one_run(tools: Tools, spec: Spec) -> None:
    verdicts = check_logs(tools, spec, shipped_logs())
    assert len(verdicts) == len(shipped_logs()) > 0
    assert all(verdict.accepted for verdict in verdicts), list(map(str, verdicts))


def test_a_corrupted_log_is_rejected_at_the_line_that_replay_names(
    tools: Tools, spec: Spec, tmp_path: Path
) -> None:
    paths = list(_corrupted(tmp_path))
    replayed = {str(path): judge_file(spec, path).unexpected for path in paths}
    assert {path.name.split("-")[2] for path in paths} >= {kind.__name__ for kind in KINDS}
    for verdict in check_logs(tools, spec, paths):
        expected = min((violation.line for violation in replayed[verdict.path]), default=0)
        assert verdict.line == expected, str(verdict)
        assert not verdict.accepted or not expected


def _run(path: Path, spec: Spec) -> None:
    """A short life with a hit, a miss and its retry, a cut and an abort."""
    life = HiCacheLifecycle(
        pool_tokens=64, max_context_len=16, interval=1, spec=spec, log=EventLog(path, threshold_tokens=1)
    )
    first, second, third = (life.enqueue(rid, 4) for rid in ("a", "b", "c"))
    anchor = Anchor("node", 2)
    asked = [life.issue(key, anchor=anchor) or 0 for key in (first, second, third)]
    life.hit(first, asked[0], 4, 4)
    life.missed(second, asked[1])
    life.cut(third)
    for _ in range(2):
        for key in life.begin_pass():
            life.issue(key, anchor=anchor)
    life.loaded(first, asked[0])
    life.admit(first)
    life.abort(second)
    life.abort(third)
    for op in life.orphans:
        life.missed(third, op)
    life.finish(first)
    life.close()


def test_a_log_of_the_runtime_is_accepted_and_its_wrong_twin_is_rejected_by_name(
    tools: Tools, spec: Spec, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    _run(good, spec)
    lines = [json.loads(line) for line in good.read_text().splitlines()]
    place = next(n for n, line in enumerate(lines) if line.get("event") == "hit")
    lines[place]["event"] = "unpark"
    bad.write_text(dump(lines))
    accepted, rejected = check_logs(tools, spec, [good, bad])
    assert accepted.accepted, str(accepted)
    assert (rejected.line, rejected.event, rejected.rules) == (place + 1, "prefetch.unpark", ("legal",))
    assert str(rejected) == f"{bad}:{place + 1}: prefetch.unpark breaks legal"


def test_no_logs_need_no_run(tools: Tools, spec: Spec) -> None:
    assert check_logs(tools, spec, []) == []
