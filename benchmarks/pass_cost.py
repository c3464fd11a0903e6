"""What the runtime costs: a scheduling pass against SGLang's own, and a transition against two libraries.

Times of one run are only comparable with each other, so the tables give ratios beside microseconds.
"""

import argparse
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

from measure import BUDGET, INTERVAL, lifecycle, show, timed
from transition_cost import NAMES, transition_rows

from hicache_fsm.runtime import Completion
from hicache_fsm.sglang.excerpt import excerpt
from hicache_fsm.sglang.install import DEFAULT_ROOT
from hicache_fsm.sglang.retries import StoragePrefetchRetries

WAITING = (1_000, 10_000, 100_000)
ARMED_PERCENT = (0, 1, 10, 100)
DUE = ("none", "new", "one", "all")
IDLE_PASSES = 400
SWEEP = "Scheduler._retry_missed_storage_prefetches"
POP = "UnifiedRadixCache.pop_storage_prefetch_miss"


@dataclass(slots=True, eq=False)
class Req:
    """What SGLang's request has of retries, and no more: faster to read than the real one."""

    rid: str
    storage_prefetch_retry_attempts: int = 0
    storage_prefetch_retry_pending: bool = False
    storage_prefetch_retry_wait_polls: int = 0


Pass = Callable[[], object]


def runtime_pass(waiting: int, chosen: range, due: str) -> Pass:
    """The runtime, so many of whose attempts missed; a pass of it."""
    life = lifecycle()
    keys = [life.enqueue(f"r{number}", 96) for number in range(waiting)]
    early = {"one": 1, "all": len(chosen)}.get(due, 0)
    for part in (chosen[:early], chosen[early:]):
        for number in part:
            life.post(Completion(life.issue(keys[number]) or 0, "miss"))
        if due != "new":
            life.begin_pass()
    if due == "new":
        life._answers.drain(None)  # taking in the answers is no part of the sweep
    for _ in range(INTERVAL - 2 if early else 0):
        life.begin_pass()
    return life.begin_pass


def retries_pass(retries: Any, waiting: int, chosen: range, due: str) -> Pass:
    """An object with the surface of 0.5.23's retries, in the same position; its clock is set forward."""
    queue = [Req(f"r{number}") for number in range(waiting)]
    early = {"one": 1, "all": len(chosen)}.get(due, 0)
    for part in (chosen[:early], chosen[early:]):
        for number in part:
            retries.poll_miss(f"r{number}")
        if due != "new":
            retries.pop_ready(queue, INTERVAL, BUDGET)
    if early:
        retries._step += INTERVAL - 2
    return lambda: retries.pop_ready(queue, INTERVAL, BUDGET)


def seed_pass(
    functions: dict[str, Any], memory: SimpleNamespace, waiting: int, chosen: range, due: str
) -> Pass:
    """The sweep of 0.5.19's scheduler, in the same position."""
    queue = [Req(f"r{number}") for number in range(waiting)]
    markers = {f"r{number}" for number in chosen}
    tree = SimpleNamespace(_storage_prefetch_missed_rids=markers if due == "new" else set())
    tree.pop_storage_prefetch_miss = lambda rid: functions[POP](tree, rid)
    for place, number in enumerate(chosen if due != "new" else ()):
        queue[number].storage_prefetch_retry_pending = True
        is_due = due == "all" or (due == "one" and not place)
        queue[number].storage_prefetch_retry_wait_polls = INTERVAL if is_due else 0
    memory.hicache_storage_prefetch_retry_poll_interval = INTERVAL
    memory.hicache_storage_prefetch_retry_max_attempts = BUDGET
    scheduler = SimpleNamespace(waiting_queue=queue, tree_cache=tree, _prefetch_kvcache=lambda req: None)
    return lambda: functions[SWEEP](scheduler)


def contestants(root: Path = DEFAULT_ROOT) -> dict[str, Callable[[int, range, str], Pass]]:
    """Who is measured, and how to bring each into a position; SGLang's own where its wheels are laid out."""
    found: dict[str, Callable[[int, range, str], Pass]] = {
        "runtime": runtime_pass,
        "drop-in": lambda *position: retries_pass(StoragePrefetchRetries(), *position),
    }
    newest = root / "0.5.23" / "sglang" / "srt" / "mem_cache" / "storage_prefetch.py"
    if newest.exists():
        names = ["_StoragePrefetchRetry", "StoragePrefetchRetries"]
        original = excerpt(newest, names, dataclass=dataclass, Optional=Optional)[names[1]]
        found["0.5.23"] = lambda *position: retries_pass(original(), *position)
    seed = root / "0.5.19" / "sglang" / "srt"
    if seed.exists():
        memory = SimpleNamespace()
        quiet = SimpleNamespace(debug=lambda *_: None)
        given = {"get_memory": lambda: memory, "logger": quiet}
        functions = excerpt(seed / "managers" / "scheduler.py", [SWEEP], **given)
        functions |= excerpt(seed / "mem_cache" / "unified_radix_cache.py", [POP])
        found["0.5.19"] = lambda *position: seed_pass(functions, memory, *position)
    return found


def cases(waiting: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Waiting requests, the share of them that is armed, and which of these are due."""
    for number in waiting:
        for percent in ARMED_PERCENT:
            for due in DUE if percent else DUE[:1]:
                yield number, percent, due


def pass_rows(waiting: Sequence[int], repeats: int) -> tuple[list[str], list[list[str]]]:
    """One row per case, the best of some repeats: one pass where something is to do, else the mean of many."""
    who = contestants()
    rows = []
    for number, percent, due in cases(waiting):
        chosen = range(1, number, 100 // percent) if percent else range(0)
        best = dict.fromkeys(who, float("inf"))
        for _ in range(repeats):
            for name, prepare in who.items():
                a_pass = prepare(number, chosen, due)
                passes = 1 if due != "none" else IDLE_PASSES if name in ("runtime", "drop-in") else 5
                gc.collect()
                gc.disable()
                spent = timed(lambda: [a_pass() for _ in range(passes)]) / passes  # noqa: B023 - called at once
                gc.enable()
                best[name] = min(best[name], spent)
        ratio = best["runtime"] / best["0.5.23"] if "0.5.23" in best else float("nan")
        rows.append(
            [f"{number:,}", f"{percent} %", due, *(f"{best[name]:,.2f}" for name in who), f"{ratio:.3g}"]
        )
    return [f"{name} us" for name in who], rows


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 and 10,000 waiting only, fewer repeats")
    quick = parser.parse_args().quick
    names, rows = pass_rows(WAITING[:2] if quick else WAITING, 2 if quick else 3)
    show("One scheduling pass", ("waiting", "armed", "due", *names, "runtime / 0.5.23"), rows)
    show("One checked transition of a prefetch", NAMES, transition_rows(5 if quick else 21))


if __name__ == "__main__":
    main()
