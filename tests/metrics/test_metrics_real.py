"""The plugin's metrics in a real SGLang, in the multiprocess mode that SGLang itself switches on."""

import os
from collections import Counter
from pathlib import Path

import prometheus_client
import pytest
from metrics_support import by_label, scrape
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from hicache_fsm.runtime import read_log
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, record, require


@pytest.mark.sglang
@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.5.19", "0.5.23"])
def test_a_real_sglang_counts_what_its_event_log_says(tmp_path: Path, version: str) -> None:
    try:
        require(version)
    except HarnessMissingError as missing:
        pytest.skip(str(missing))
    site, files = tmp_path / "site", tmp_path / "files"
    site.mkdir()
    files.mkdir()
    (site / "prometheus_client").symlink_to(Path(prometheus_client.__file__).parent)
    path = child_environment(version, tmp_path)["PYTHONPATH"] + os.pathsep + str(site)
    record(
        version,
        tmp_path / "log.jsonl",
        arguments=["--sessions", "12", "--turns", "3"],
        plugin={"HICACHE_FSM_METRICS": "1", "PROMETHEUS_MULTIPROC_DIR": str(files), "PYTHONPATH": path},
    )
    lines = [line for line in read_log(tmp_path / "log.jsonl") if line.kind == "event"]
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(files))
    samples = scrape(registry)
    events = Counter((line.machine, line.event) for line in lines)
    assert by_label(samples, "transitions_total", "machine", "event") == events
    assert events["prefetch", "enqueue"] > 30
    assert by_label(samples, "refused_events_total", "machine", "event") == {}
    assert by_label(samples, "states", "machine", "state") == {}, "the engine is idle at the end"
    left = [line for line in lines if line.event in ("admit", "abort", "abandon")]
    assert samples["questions_per_request_count", (("tp_rank", "0"),)] == len(left)
    assert by_label(samples, "audits_total", "clean")
