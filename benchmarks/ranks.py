"""What comparing ranks costs a pass: real processes with gloo, against the same passes without comparison."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hicache_fsm.ranks import Decisions, RankComparison, RankDigest, side_group
from hicache_fsm.runtime import HiCacheLifecycle

PASSES = 2_048
PER_PASS = 8
"""Attempts that begin and are admitted in each pass: 32 decisions."""


def costs(every: int, group: object) -> tuple[float, float]:
    """Processor time of one pass with its decisions, and the median wall time of a comparison, in microseconds.

    `every` 0 keeps no digest, -1 a digest without comparison.
    """
    life = HiCacheLifecycle(pool_tokens=10**12, max_context_len=4096, page_size=16, interval=8)
    digest = RankDigest()
    comparison = RankComparison(digest, group, every=every) if every > 0 else None
    if every:
        Decisions(life, digest)
    waits = []
    started = time.process_time()
    for _ in range(PASSES):
        life.begin_pass()
        if comparison is not None:
            began, before = time.perf_counter(), comparison.compared
            assert comparison.passed(life.now) is None
            if comparison.compared > before:
                waits.append(time.perf_counter() - began)
        for number in range(PER_PASS):
            key = life.enqueue(f"r{number}", 96)
            life.missed(key, life.issue(key) or 0)
            life.admit(key)
            life.finish(key)
    spent = (time.process_time() - started) * 1e6 / PASSES
    return spent, statistics.median(waits) * 1e6 if waits else 0.0


def rank(number: int, ranks: int, folder: str, repeat: int) -> None:
    """One process; the first one prints."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=number, world_size=ranks)
    group = side_group()
    cases = {"nothing": 0, "digest": -1, "every 64": 64, "every 16": 16, "every pass": 1}
    told = {name: list[tuple[float, float]]() for name in cases}
    for _ in range(repeat):
        for name, every in cases.items():
            dist.barrier()
            told[name].append(costs(every, group))
    base = statistics.median(spent for spent, _ in told["nothing"])
    if number == 0:
        for name, values in told.items():
            spent, wait = (statistics.median(column) for column in zip(*values, strict=True))
            print(
                f"| {ranks} | {name} | {spent:.1f} | {spent - base:.1f} | {spent / base:.2f} | {wait:.0f} |"
            )
    dist.barrier()


def on_sglang(version: str, ranks: int, repeat: int) -> None:
    """Processor time of a pass of the real scheduler, per rank, with and without the plugin and its comparison."""
    from hicache_fsm.sglang.ranked import Case, play_cases

    plugins = {"no plugin": {}, "observe": {"HICACHE_FSM_MODE": "observe"}}
    plugins |= {f"compared every {every}": {"HICACHE_FSM_RANKS": str(every)} for every in (64, 16, 1)}
    work = ("--requests", "80", "--seed", "1", "--real-time")
    names = [name for name in plugins for _ in range(repeat)]
    with tempfile.TemporaryDirectory() as folder:
        told = play_cases(version, [Case(work, ranks, plugins[name]) for name in names], Path(folder))
    spent: dict[str, list[float]] = {name: [] for name in plugins}
    for name, seen in zip(names, told, strict=True):
        spent[name].append(statistics.mean(one["cpu_s"] / one["passes"] for one in seen) * 1e6)
    base = statistics.median(spent["no plugin"])
    print("| ranks | real SGLang with | CPU µs a pass and rank | ratio |\n|--:|---|--:|--:|")
    for name, values in spent.items():
        print(
            f"| {ranks} | {name} | {statistics.median(values):.0f} | {statistics.median(values) / base:.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument(
        "--sglang", metavar="VERSION", help="on the real scheduler that `make sglang` lays out"
    )
    parser.add_argument("--process", nargs=3, metavar=("RANK", "RANKS", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        number, ranks, folder = options.process
        rank(int(number), int(ranks), folder, options.repeat)
        return
    if options.sglang:
        for ranks in options.ranks:
            on_sglang(options.sglang, ranks, options.repeat)
        return
    print("| ranks | with | CPU µs a pass | added | ratio | µs a comparison (wall) |")
    print("|--:|---|--:|--:|--:|--:|", flush=True)
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(Path(__file__)), "--repeat", str(options.repeat), "--process"]
            running = [subprocess.Popen([*command, str(each), str(ranks), folder]) for each in range(ranks)]
            codes = [process.wait() for process in running]
            if any(codes):
                raise SystemExit("a rank failed")


if __name__ == "__main__":
    main()
