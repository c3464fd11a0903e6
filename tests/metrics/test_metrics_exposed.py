"""What is documented is what is exposed, in one process and in SGLang's several."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from metrics_support import by_label, scrape
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from hicache_fsm.metrics import CATALOGUE, Meters
from hicache_fsm.metrics.catalogue import PREFIX
from hicache_fsm.metrics.page import metrics_page

ROOT = Path(__file__).parents[2]
RANK = """
import sys
from hicache_fsm.metrics import LifecycleMetrics
from hicache_fsm.runtime import HiCacheLifecycle
rank = int(sys.argv[1])
life = HiCacheLifecycle("recommended", pool_tokens=4096, max_context_len=1024)
LifecycleMetrics(life, labels={"tp_rank": rank})
for number in range(3 + rank):
    key = life.enqueue(f"r{number}", 512)
    op = life.issue(key)
    if number == 1:
        life.missed(key, op)
life.begin_pass()
"""


def test_the_page_is_generated_from_the_catalogue() -> None:
    assert (ROOT / "docs/metrics.md").read_text() == metrics_page(), (
        "run `python -m hicache_fsm.metrics.page`"
    )


@pytest.mark.parametrize("source", ["lifecycle", "plugin"])
def test_a_source_exposes_the_families_that_the_page_says(source: str) -> None:
    letter = source[0].upper()
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|[^|]*\| ([LP ]+) \|", metrics_page(), re.MULTILINE)
    documented = {(name.removesuffix("_total"), kind) for name, kind, sources in rows if letter in sources}
    exposed = {(one.name.removeprefix(PREFIX), one.type) for one in Meters(source=source).registry.collect()}
    assert exposed == documented
    assert len(exposed) > 15


def test_counters_end_in_total_and_no_name_comes_twice() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names)
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in CATALOGUE)


def test_no_family_has_a_label_for_single_requests() -> None:
    known = {"machine", "state", "event", "reason", "outcome", "invariant", "kind", "why", "clean"}
    assert {label for metric in CATALOGUE for label in metric.labels} <= known


def test_in_multiprocess_mode_each_rank_keeps_its_gauges_after_its_end(tmp_path: Path) -> None:
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for rank in ("0", "1"):
        subprocess.run([sys.executable, "-c", RANK, rank], env=environment, check=True, timeout=60)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(tmp_path))
    samples = scrape(registry)
    states = by_label(samples, "states", "machine", "state", "tp_rank")
    prefetch = {
        (state, rank): count for (machine, state, rank), count in states.items() if machine == "prefetch"
    }
    assert prefetch == {("pending", "0"): 1, ("probing", "0"): 2, ("pending", "1"): 1, ("probing", "1"): 3}
    assert not [labels for _, labels in samples if "pid" in dict(labels)]
    transitions = by_label(samples, "transitions_total", "event", "tp_rank")
    assert transitions["enqueue", "0"] == 3
    assert transitions["enqueue", "1"] == 4


def test_the_package_is_imported_without_prometheus_client() -> None:
    """SGLang sets PROMETHEUS_MULTIPROC_DIR late, and prometheus-client looks at it when it is imported."""
    code = "import sys, hicache_fsm.metrics.sglang_sink as s; s.make_sink(); print('prometheus_client' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == "False"


def test_many_observations_at_once_are_as_many_single_ones() -> None:
    ours, theirs = Meters(), Meters()
    for value, times in ((0, 3), (2, 5), (16, 1), (17, 2)):
        ours.observe("questions_per_request", value, times)
        for _ in range(times):
            theirs.child("questions_per_request").observe(value)
    assert scrape(ours.registry) == scrape(theirs.registry)
    assert scrape(ours.registry)["questions_per_request_count", ()] == 11


def test_nothing_is_registered_where_nobody_asked_for_it() -> None:
    Meters()
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith(PREFIX)]
