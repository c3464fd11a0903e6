"""A lifecycle's metrics say what its event log says, and what it holds."""

import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from metrics_support import by_label, parsed, scrape
from prometheus_client import CollectorRegistry, start_http_server
from random_lives import SPEC, Lives, lifecycle

from hicache_fsm.metrics import LifecycleMetrics, MetricsUnavailable
from hicache_fsm.runtime import Anchor, Line, read_log


def lived(
    tmp_path: Path, seed: int, profile: str = "recommended"
) -> tuple[Lives, LifecycleMetrics, list[Line]]:
    """Random lives, their metrics and their log, closed."""
    path = tmp_path / "log.jsonl"
    life = lifecycle(path, profile)
    metrics = LifecycleMetrics(life, spec=SPEC)
    lives = Lives(life, seed)
    lives.run(1800)
    metrics.flush()
    life.close()
    return lives, metrics, [line for line in read_log(path, spec=SPEC) if line.kind == "event"]


@pytest.mark.parametrize(("seed", "profile"), [(1, "recommended"), (2, "sglang-0.5.23"), (3, "seed")])
def test_the_gauges_of_states_are_what_is_queued(tmp_path: Path, seed: int, profile: str) -> None:
    lives, metrics, _ = lived(tmp_path, seed, profile)
    states = by_label(scrape(metrics.registry), "states", "machine", "state")
    prefetch = {state: count for (machine, state), count in states.items() if machine == "prefetch"}
    assert sum(prefetch.values()) == lives.life.waiting > 5
    assert prefetch == lives.states()
    assert len(prefetch) > 2


@pytest.mark.parametrize(("seed", "profile"), [(4, "recommended"), (5, "sglang-0.5.23"), (6, "seed")])
def test_orphans_are_gauged(tmp_path: Path, seed: int, profile: str) -> None:
    lives, metrics, _ = lived(tmp_path, seed, profile)
    orphans = by_label(scrape(metrics.registry), "states", "state").get(("orphan",), 0)
    assert orphans == len(lives.life.orphans) > 0


@pytest.mark.parametrize(("seed", "profile"), [(7, "recommended"), (8, "sglang-0.5.23"), (9, "seed")])
def test_every_transition_of_the_log_is_counted_once(tmp_path: Path, seed: int, profile: str) -> None:
    _, metrics, lines = lived(tmp_path, seed, profile)
    assert transitions(metrics) == in_log(lines)


def transitions(metrics: LifecycleMetrics) -> dict[tuple[str, ...], float]:
    return by_label(scrape(metrics.registry), "transitions_total", "machine", "event")


def in_log(lines: list[Line]) -> Counter[tuple[str, ...]]:
    return Counter((line.machine, line.event) for line in lines if not line.data.get("illegal"))


def test_a_transition_that_is_not_counted_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = LifecycleMetrics.stepped

    def forgets_cuts(self: Any, now: int, attempt: Any, moment: Any, row: Any, op: Any) -> None:
        if row.transition.event != "cut":
            counted(self, now, attempt, moment, row, op)

    monkeypatch.setattr(LifecycleMetrics, "stepped", forgets_cuts)
    lives, metrics, lines = lived(tmp_path, 7)
    assert transitions(metrics) != in_log(lines)
    states = by_label(scrape(metrics.registry), "states", "machine", "state")
    assert {
        state: count for (machine, state), count in states.items() if machine == "prefetch"
    } != lives.states()


def test_misses_pins_and_refused_events_are_those_of_the_log(tmp_path: Path) -> None:
    lives, metrics, lines = lived(tmp_path, 10)
    samples = scrape(metrics.registry)
    assert by_label(samples, "misses_total", "reason") == {(why,): n for why, n in lives.life.misses.items()}
    pins = Counter((line.why,) for line in lines if line.event == "pin" and not line.data.get("illegal"))
    assert by_label(samples, "pins_total", "outcome") == pins
    assert len(pins) > 2
    refused = Counter((line.machine, line.event) for line in lines if line.data.get("illegal"))
    assert by_label(samples, "refused_events_total", "machine", "event") == refused


def test_retries_and_questions_are_those_of_the_log(tmp_path: Path) -> None:
    _, metrics, lines = lived(tmp_path, 11)
    samples = scrape(metrics.registry)
    taken = [line for line in lines if line.machine == "prefetch" and not line.data.get("illegal")]
    again = [
        line for line in taken if line.event in ("sweep", "lose_match") and line.op and line.seen["entry"]
    ]
    assert samples["retries_issued_total", ()] == len(again) > 20
    numbers = {line.op for line in again}
    served = [line for line in taken if line.event == "hit" and line.op in numbers and line.seen["entry"]]
    assert samples["retries_served_total", ()] == len(served) > 5
    left = [line for line in taken if line.event in ("admit", "abort", "abandon")]
    assert samples["questions_per_request_count", ()] == len(left) > 100


def test_passes_between_miss_and_hit_are_counted_from_the_first_miss() -> None:
    life = lifecycle(interval=3)
    metrics = LifecycleMetrics(life, spec=SPEC)
    life.enqueue("head", 96)
    key = life.enqueue("r", 96)
    life.begin_pass()
    life.missed(key, life.issue(key) or 0)
    asked = 0
    for _ in range(30):
        if key in life.begin_pass():
            op = life.issue(key) or 0
            asked += 1
            if asked == 2:
                life.hit(key, op, 96, 96)
                break
            life.missed(key, op)
    passes = life.now - 1
    metrics.flush()
    samples = scrape(metrics.registry)
    assert samples["miss_to_hit_passes_count", ()] == 1
    assert samples["miss_to_hit_passes_sum", ()] == passes > 5


def test_pinned_tokens_are_gauged_against_their_cap() -> None:
    life = lifecycle()
    metrics = LifecycleMetrics(life, spec=SPEC)
    for name in "abc":
        life.issue(life.enqueue(name, 96), anchor=Anchor(name, 400))
    life.begin_pass()
    samples = scrape(metrics.registry)
    assert samples["pinned_tokens", ()] == life.pinned_tokens == 800
    assert samples["pin_cap_tokens", ()] == life.settings.pin_cap == 1008
    assert samples["pins_held", ()] == 2
    assert by_label(samples, "pins_total", "outcome") == {("locked",): 2, ("cap_busy",): 1}


def test_lowered_beliefs_are_counted_in_pages() -> None:
    life = lifecycle()
    metrics = LifecycleMetrics(life, spec=SPEC)
    pages = ["a", "b", "c", "d"]
    life.stored("kv", life.write("kv", pages))
    life.deny("kv", ["a", "never believed"])
    life.discard("kv", pages, 2, [])
    metrics.flush()
    lowered = by_label(scrape(metrics.registry), "beliefs_lowered_total", "event")
    assert lowered == {("deny",): 1, ("discard",): 2}


def test_violations_and_repairs_are_counted_by_name() -> None:
    life = lifecycle(profile="seed")
    metrics = LifecycleMetrics(life, spec=SPEC)
    key = life.enqueue("r", 96)
    life.missed(key, life.issue(key, anchor=Anchor("n", 48)) or 0)
    life.abandon(key)
    life.begin_pass()
    samples = scrape(metrics.registry)
    assert life.monitor is not None
    counts = {(name,): count for name, count in life.monitor.counts.items()}
    assert by_label(samples, "invariant_violations_total", "invariant") == counts != {}
    assert (
        by_label(samples, "repairs_total", "kind") == {(kind,): n for kind, n in life.repairs.items()} != {}
    )


def test_every_invariant_has_a_series_before_its_first_violation() -> None:
    metrics = LifecycleMetrics(lifecycle(), spec=SPEC)
    told = {
        dict(labels)["invariant"]
        for name, labels in scrape(metrics.registry)
        if name == "invariant_violations_total"
    }
    assert told == set(SPEC.invariants)


def test_series_have_the_labels_of_the_process_and_no_request_ids(tmp_path: Path) -> None:
    life = lifecycle(tmp_path / "log.jsonl")
    metrics = LifecycleMetrics(life, labels={"model_name": "m", "tp_rank": 3}, spec=SPEC)
    lives = Lives(life, 12)
    lives.run(1000)
    metrics.flush()
    samples = scrape(metrics.registry)
    for _, labels in samples:
        assert ("model_name", "m") in labels
        assert ("tp_rank", "3") in labels
        assert not [value for _, value in labels if value in {key.rid for key in lives.keys}]
    before = len(samples)
    lives.run(1000)
    metrics.flush()
    assert len(scrape(metrics.registry)) < before * 1.2


def test_a_pass_that_nothing_happened_before_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    life = lifecycle()
    metrics = LifecycleMetrics(life, spec=SPEC)
    life.enqueue("r", 96)
    life.begin_pass()
    monkeypatch.setattr(metrics, "flush", lambda: pytest.fail("flushed without an event"))
    life.begin_pass()


def test_metrics_are_served_over_http() -> None:
    life = lifecycle()
    metrics = LifecycleMetrics(life, spec=SPEC)
    life.enqueue("r", 96)
    life.begin_pass()
    server, thread = start_http_server(0, addr="127.0.0.1", registry=metrics.registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert by_label(parsed(text), "states", "machine", "state") == {("prefetch", "queued"): 1}


def test_two_lifecycles_share_a_registry_by_one_set_of_meters_each() -> None:
    registry = CollectorRegistry()
    LifecycleMetrics(lifecycle(), registry=registry, spec=SPEC)
    with pytest.raises(ValueError, match="Duplicated"):
        LifecycleMetrics(lifecycle(), registry=registry, spec=SPEC)


def test_metrics_that_come_after_the_first_request_are_refused() -> None:
    life = lifecycle()
    life.enqueue("r", 96)
    with pytest.raises(ValueError, match="before the first request"):
        LifecycleMetrics(life, spec=SPEC)


def test_without_prometheus_client_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hicache_fsm.metrics.meters.find_spec", lambda name: None)
    with pytest.raises(MetricsUnavailable, match=r'pip install "hicache-fsm\[metrics\]"') as told:
        LifecycleMetrics(lifecycle(), spec=SPEC)
    assert "\n" not in str(told.value)
