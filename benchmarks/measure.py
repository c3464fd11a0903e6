"""What the benchmarks of the runtime share."""

import time
from collections.abc import Callable, Sequence

from hicache_fsm.runtime import HiCacheLifecycle, Log

INTERVAL = 1_000
BUDGET = 10**9


def timed(action: Callable[[], object]) -> float:
    """Microseconds of processor time of one call, which other processes disturb less than the wall clock."""
    started = time.thread_time_ns()
    action()
    return (time.thread_time_ns() - started) / 1e3


def lifecycle(log: Log | None = None, *, monitor: bool = False) -> HiCacheLifecycle:
    """A lifecycle on pools that never fill; its budget never ends."""
    return HiCacheLifecycle(
        pool_tokens=10**12,
        max_context_len=4096,
        page_size=16,
        interval=INTERVAL,
        max_attempts=BUDGET,
        log=log,
        monitor=monitor,
    )


def show(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(names)} |\n|{'--:|' * len(names)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)
