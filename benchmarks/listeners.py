"""What metrics and a rank's digest add to a lifecycle: whole lives with each, against the same lives without.

Set PROMETHEUS_MULTIPROC_DIR to an empty folder to measure metrics as SGLang has them, in files.
"""

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable

from hicache_fsm.metrics import LifecycleMetrics
from hicache_fsm.ranks import Decisions, RankDigest
from hicache_fsm.runtime import Anchor, HiCacheLifecycle

EVENTS = 14
"""Events of one life here: two misses, a hit, a load, an admission, its end, and the pins."""

Attach = Callable[[HiCacheLifecycle], object]


def lifecycle(attach: Attach | None) -> HiCacheLifecycle:
    """A lifecycle on pools that never fill."""
    life = HiCacheLifecycle(
        pool_tokens=10**12, max_context_len=4096, page_size=16, interval=1, max_attempts=8
    )
    if attach is not None:
        attach(life)
    return life


def digest(life: HiCacheLifecycle) -> object:
    """Listen with a digest whose passes close by themselves."""
    return Decisions(life, RankDigest())


def both(life: HiCacheLifecycle) -> object:
    """Metrics and a digest."""
    return LifecycleMetrics(life), digest(life)


def live(life: HiCacheLifecycle, lives: int, per_pass: int) -> None:
    """So many whole lives, `per_pass` of them beginning in each pass."""
    anchor = Anchor("node", 64)
    for _ in range(lives // per_pass):
        keys = [life.enqueue(f"r{number}", 96) for number in range(per_pass)]
        for key in keys:
            life.missed(key, life.issue(key, anchor=anchor) or 0)
        life.begin_pass()
        for key in life.begin_pass():
            op = life.issue(key, anchor=anchor) or 0
            life.hit(key, op, 96, 96)
            life.loaded(key, op)
            life.admit(key)
            life.finish(key)


def microseconds(attach: Attach | None, lives: int, per_pass: int) -> float:
    """Processor time of one life."""
    life = lifecycle(attach)
    life.enqueue("head", 96)
    live(life, per_pass, per_pass)
    gc.collect()
    gc.disable()
    started = time.thread_time_ns()
    live(life, lives, per_pass)
    spent = time.thread_time_ns() - started
    gc.enable()
    return spent / 1e3 / lives


def idle_pass(attach: Attach | None, passes: int) -> float:
    """Microseconds of a pass before which nothing happened."""
    life = lifecycle(attach)
    life.enqueue("head", 96)
    life.begin_pass()
    started = time.thread_time_ns()
    for _ in range(passes):
        life.begin_pass()
    return (time.thread_time_ns() - started) / 1e3 / passes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=4000)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    cases: dict[str, Attach | None] = {
        "nothing": None,
        "metrics": LifecycleMetrics,
        "digest": digest,
        "both": both,
    }
    where = "files" if os.environ.get("PROMETHEUS_MULTIPROC_DIR") else "memory"
    print(f"metrics in {where}; median of {options.repeat}, {EVENTS} events a life")
    print("| begun per pass | with | µs a life | ratio | ns added an event |")
    print("|--:|---|--:|--:|--:|")
    for per_pass in (1, 10, 100):
        told = {name: list[float]() for name in cases}
        for _ in range(options.repeat):
            for name, attach in cases.items():
                told[name].append(microseconds(attach, options.lives, per_pass))
        base = statistics.median(told["nothing"])
        for name, values in told.items():
            value = statistics.median(values)
            added = (value - base) * 1e3 / EVENTS
            print(f"| {per_pass} | {name} | {value:.1f} | {value / base:.2f} | {added:.0f} |")
    print("\n| with | µs a pass without an event | ratio |\n|---|--:|--:|")
    base = 0.0
    for name, attach in cases.items():
        value = statistics.median(idle_pass(attach, 20_000) for _ in range(options.repeat))
        base = base or value
        print(f"| {name} | {value:.2f} | {value / base:.2f} |")


if __name__ == "__main__":
    main()
