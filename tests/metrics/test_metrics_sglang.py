"""The plugin's metrics, fed with what real SGLang versions did."""

from collections import Counter
from pathlib import Path

import pytest
from metrics_support import by_label, scrape
from random_lives import lifecycle

from hicache_fsm.check import shipped_logs
from hicache_fsm.metrics import MetricsUnavailable
from hicache_fsm.metrics.sglang_sink import SglangMetrics, make_sink
from hicache_fsm.runtime import AttemptKey, Line, read_log
from hicache_fsm.sglang.sink import Audit, Finding, Repair, Sink, Totals

LOGS = {path.name.removeprefix("sglang-").removesuffix(".jsonl.gz"): path for path in shipped_logs()}
ARMED = ("missed", "pending")
WAITING = [
    "enqueue",
    "issue",
    "hit",
    "miss",
    "done",
    "fail",
    "cut",
    "expire",
    "revoke",
    "lose_anchor",
    "unpark",
    "sweep",
    "lose_match",
    "shrink",
]
"""Events after which the attempt still waits."""
ENTRY = ("probing", "retrying", "parked", "transferring")


def fed(sink: SglangMetrics, line: Line) -> None:
    """Tell the sink a line as the plugin would, which knows nothing of `seen` without a log."""
    if line.kind == "header":
        sink.engine(line.data)
    elif line.kind == "event":
        left_out = ("seq", "pass", "machine", "event", "seen")
        members = {name: value for name, value in line.data.items() if name not in left_out}
        sink.transition(line.pass_, line.machine, line.event, line.rid or None, members)


def told(log: Path) -> tuple[SglangMetrics, list[Line]]:
    sink = make_sink()
    lines = list(read_log(log))
    for line in lines:
        fed(sink, line)
    sink.close()
    return sink, lines


def totals(**members: int) -> Totals:
    names = "queued running markers entries parked holds pinned_tokens pin_cap_tokens occupied_tokens"
    return Totals(**(dict.fromkeys(names.split(), 0) | members))


def test_the_metrics_are_a_sink() -> None:
    sink: Sink = make_sink()
    assert sink is not None


@pytest.mark.parametrize(("version", "known"), [("0.5.19", {("enqueue", "armed"): 2}), ("0.5.23", {})])
def test_states_followed_by_the_machine_are_those_that_the_engine_shows(
    version: str, known: dict[tuple[str, str], int]
) -> None:
    """The two of 0.5.19 are its pacing flag that survives admission and retraction (docs/upstream-findings.md)."""
    sink = make_sink()
    differs: Counter[tuple[str, str]] = Counter()
    checked = 0
    for line in read_log(LOGS[version]):
        fed(sink, line)
        if line.machine == "prefetch" and line.event in WAITING:
            checked += 1
            state, seen = sink.state(line.rid), line.seen
            differs[line.event, "parked"] += (state == "parked") != seen["parked"]
            differs[line.event, "armed"] += (state in ARMED) != seen["armed"]
            differs[line.event, "entry"] += (state in ENTRY) != seen["entry"]
    assert +differs == known
    assert checked > 500


def by_state(sink: SglangMetrics) -> Counter[str]:
    sink.close()
    assert sink.registry is not None
    found = by_label(scrape(sink.registry), "states", "machine", "state")
    return Counter({state: int(count) for (machine, state), count in found.items() if machine == "prefetch"})


@pytest.mark.parametrize("version", LOGS)
def test_the_gauges_of_states_sum_to_what_is_queued_pass_by_pass(version: str) -> None:
    sink = make_sink()
    queued = passes = 0
    now = -1
    for line in read_log(LOGS[version]):
        if line.pass_ != now and line.pass_ % 16 == 0 and passes:
            assert by_state(sink).total() == queued
        passes += line.pass_ != now
        now = line.pass_
        fed(sink, line)
        if line.machine == "prefetch":
            queued += line.event == "enqueue"
            queued -= line.event in ("admit", "abort", "abandon")
    assert by_state(sink).total() == queued == 0


@pytest.mark.parametrize("version", LOGS)
def test_every_event_of_a_real_log_is_counted_once_and_none_is_refused(version: str) -> None:
    sink, lines = told(LOGS[version])
    assert sink.registry is not None
    samples = scrape(sink.registry)
    events = Counter((line.machine, line.event) for line in lines if line.kind == "event")
    assert by_label(samples, "transitions_total", "machine", "event") == events
    assert by_label(samples, "refused_events_total", "machine", "event") == {}


def test_misses_pins_and_retries_of_a_real_log_are_counted() -> None:
    sink, lines = told(LOGS["0.5.23"])
    assert sink.registry is not None
    samples = scrape(sink.registry)
    whys = Counter((line.why,) for line in lines if line.event == "miss")
    misses = by_label(samples, "misses_total", "reason")
    assert {why: misses[why] for why in whys} == whys
    pins = Counter((line.why,) for line in lines if line.machine == "pin" and line.event == "pin")
    assert by_label(samples, "pins_total", "outcome") == pins
    again = [line for line in lines if line.event in ("sweep", "lose_match") and line.op]
    assert samples["retries_issued_total", (("tp_rank", "0"),)] == len(again) > 50
    assert 0 < samples["retries_served_total", (("tp_rank", "0"),)] < len(again)
    assert samples["miss_to_hit_passes_count", (("tp_rank", "0"),)] > 10


def test_findings_repairs_and_audits_are_counted_by_name() -> None:
    sink = make_sink()
    sink.engine({"rank": 1, "profile": "sglang-0.5.23", "mode": "buffer_only"})
    finding = Finding("pin-owned", "pin", 5, "r", 0, 64, 2, 3, "abort", "a pin that nobody owns")
    sink.violation(finding)
    sink.repair(Repair("pin", 5, "r", 0, 64, "gave back a pin"))
    sink.audit(Audit(5, "idle", (finding,), 0.002))
    assert sink.registry is not None
    samples = scrape(sink.registry)
    assert by_label(samples, "invariant_violations_total", "invariant") == {("pin-owned",): 1}
    assert by_label(samples, "repairs_total", "kind", "tp_rank") == {("pin", "1"): 1}
    assert by_label(samples, "audits_total", "why", "clean") == {("idle", "false"): 1}


def test_an_attempt_that_was_never_seen_to_leave_is_gone_once_the_engine_is_empty() -> None:
    sink = make_sink()
    sink.engine({"rank": 0, "profile": "sglang-0.5.23", "mode": "buffer_only"})
    sink.transition(1, "prefetch", "enqueue", "r", {"attempt": 0})
    sink.totals(1, totals(queued=1, entries=1, pinned_tokens=64))
    assert by_state(sink) == {"queued": 1}
    assert sink.registry is not None
    assert by_label(scrape(sink.registry), "engine_holdings", "kind") == {("entries",): 1}
    sink.totals(2, totals())
    assert by_state(sink) == {}
    assert by_label(scrape(sink.registry), "pinned_tokens", "tp_rank") == {}


def test_an_unknown_profile_is_followed_as_the_newest() -> None:
    sink = make_sink()
    sink.engine({"rank": 0, "profile": "of tomorrow"})
    sink.transition(1, "prefetch", "enqueue", "r", {"attempt": 0})
    sink.transition(1, "prefetch", "issue", "r", {"attempt": 0, "facts": {"asks": True}, "op": 1})
    sink.transition(2, "prefetch", "miss", "r", {"attempt": 0, "why": "absent", "op": 1})
    assert by_state(sink) == {"missed": 1}


@pytest.mark.parametrize(
    ("profile", "again", "spent"),
    [
        ("sglang-0.5.23", "retracted", False),
        ("sglang-0.5.23", "preempted", True),
        ("sglang-0.5.23", "paused", True),
        ("seed", "retracted", True),
        ("recommended", "preempted", False),
    ],
)
def test_a_request_that_comes_back_has_the_budget_that_its_engine_gives_it_36227(
    tmp_path: Path, profile: str, again: str, spent: bool
) -> None:
    """0.5.23 renews it for a retraction alone (docs/upstream-findings.md): the others' next miss asks no more."""
    life = lifecycle(tmp_path / "log.jsonl", profile, max_attempts=1)
    life.enqueue("in front of it", 96)

    def asks_again(key: AttemptKey) -> bool:
        life.missed(key, life.issue(key) or 0)
        offered = [life.begin_pass() for _ in range(3)][-1]
        return bool(offered and life.issue(key))

    first = life.enqueue("r", 96)
    assert asks_again(first)
    life.missed(first, life.operation(first) or 0)
    life.admit(first)
    second = life.retract(first, again)
    assert second is not None
    assert asks_again(second) is not spent
    life.close()
    sink, _ = told(tmp_path / "log.jsonl")
    assert sink.state("r") == life.state(second) == ("exhausted" if spent else "retrying")


def test_without_prometheus_client_no_sink_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hicache_fsm.metrics.meters.find_spec", lambda name: None)
    with pytest.raises(MetricsUnavailable, match=r"hicache-fsm\[metrics\]"):
        make_sink()


def test_metrics_that_nobody_serves_are_told_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    make_sink().engine({"rank": 0})
    assert "--enable-metrics" in caplog.text
