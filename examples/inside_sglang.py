"""A lifecycle inside the real SGLang scheduler's loop, on a CPU, and whether the two agree on each pass.

    make sglang                             # lays the real SGLang out, once
    python examples/inside_sglang.py        # half a minute; --sessions and --seed

The scheduler, its radix tree, its controller threads and its storage are SGLang's own, from the wheel. The plugin
tells a `Mirror` what they do, which gives it to a `HiCacheLifecycle` under the profile of that version. The
lifecycle sweeps its own markers at the moment at which SGLang sweeps its own, so that whom to ask again, and when,
is decided twice; after each pass everything that both know is compared, request by request.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
from hicache_fsm.sglang.mirror import Mirror
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, require
from hicache_fsm.sglang.settings import EngineSettings

VERSION = "0.5.23"
IN_FLIGHT = ("probing", "retrying", "parked", "transferring")
ARMED = ("missed", "pending")


def enter(mirror: Mirror, scheduler: Any) -> None:
    """From here on the lifecycle sweeps whenever the scheduler is about to."""
    sweep = scheduler._process_storage_prefetch_retries

    def sweep_both() -> None:
        mirror.begin_pass(scheduler.waiting_queue[0].rid if scheduler.waiting_queue else None)
        sweep()
        mirror.swept()

    scheduler._process_storage_prefetch_retries = sweep_both


def compare(mirror: Mirror, view: Any) -> None:
    """After a pass: the queue, and everything that engine and lifecycle both know of who is in it."""
    if mirror.lost:
        return
    life, same, queue = mirror.life, mirror.same, view.scheduler.waiting_queue
    same("waiting", life.waiting, len(queue))
    for request in queue:
        key, seen = mirror.keys[request.rid], view.seen(request, True)
        state = life.state(key)
        same(f"{key} in flight", state in IN_FLIGHT, seen["entry"])
        same(f"{key} armed", state in ARMED, seen["armed"])
        same(f"{key} parked", state == "parked", seen["parked"])
        same(f"{key} loaded", state == "loaded", seen["hold"])
        same(f"{key} re-issues spent", life.spent(key), seen["spent"])
    same("markers", sum(life.state(mirror.keys[r.rid]) in ARMED for r in queue), view.markers())
    same("tokens pinned", life.pinned_tokens, view.pinned_tokens)
    mirror.counts["passes"] += 1


def follow(sessions: int, seed: int) -> Mirror:
    """Play a workload on the real scheduler, in this process, with a lifecycle beside it."""
    from hicache_fsm.sglang.plugin import install

    logging.disable(logging.WARNING)  # SGLang warns of each model that it cannot import
    mirror = Mirror()
    plugin = install("observe", sinks=[mirror])
    os.environ |= {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "40"}

    from hicache_fsm.sglang.harness.driver import Driver
    from hicache_fsm.sglang.harness.stepped import SteppedScheduler
    from hicache_fsm.sglang.harness.workload import WorkloadPlan, make_sessions
    from hicache_fsm.sglang.view import EngineView

    with tempfile.TemporaryDirectory() as folder:
        settings = EngineSettings(version=VERSION, seed=seed, retract_interval=40)
        engine = SteppedScheduler(settings, Path(folder))
        enter(mirror, engine.scheduler)
        view, step = EngineView(engine.scheduler), engine.step

        def step_and_compare() -> list[str]:
            admitted = step()
            compare(mirror, view)
            return admitted

        engine.step = step_and_compare
        plan = WorkloadPlan(sessions=sessions)
        try:
            ended = Driver(engine, make_sessions(plan, settings.seed, settings.context_tokens)).run(print)
        finally:
            engine.close()
        plugin.close()
    if plugin.guard.failed:
        mirror.differences.append("the plugin switched itself off")
    mirror.same("idle", mirror.life.idle, True)
    mirror.counts |= {"requests": sum(ended.values()) - ended["passes"], **mirror.life.misses}
    return mirror


def main() -> int:
    """0 if lifecycle and engine agreed on every pass, 1 if not, 2 if SGLang is not laid out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if "SGLANG_USE_CPU_ENGINE" not in os.environ:
        try:
            require(VERSION)
        except HarnessMissingError as missing:
            print(missing, file=sys.stderr)
            return 2
        with tempfile.TemporaryDirectory() as storage:
            environment = child_environment(VERSION, Path(storage))
            command = [str(env_python(DEFAULT_ROOT)), __file__, *sys.argv[1:]]
            child = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if child.returncode:
            print(child.stderr[max(0, child.stderr.find("Traceback")) :], file=sys.stderr)
        return child.returncode
    mirror = follow(options.sessions, options.seed)
    counts = mirror.counts
    print(
        f"SGLang {VERSION}: {counts['requests']} requests, {counts['events']} events in {counts['passes']} passes"
    )
    print(f"  {counts['sweeps']} sweeps by both, {counts['re-issues']} re-issues decided by both")
    print(f"  {counts['comparisons']} comparisons, {len(mirror.differences)} differences")
    found = Counter(violation.invariant for violation in mirror.life.check())
    print(f"  invariants broken: {', '.join(map('{0[0]} {0[1]}'.format, found.items())) or 'none'}")
    for difference in mirror.differences[:20]:
        print(difference)
    return 1 if mirror.differences else 0


if __name__ == "__main__":
    sys.exit(main())
