"""The search against TLC and SPIN, on the same systems, start-up and compilation counted.

Each run is a process of its own.  All are asked for the state space; the own search judges every invariant on
the way, the other two none.  Equal counts are required, so that nobody wins by searching less.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

SIZES: Final = ("admission.pair", "admission.retracted", "admission.wide", "admission.long")
PROFILE: Final = "recommended"
EXPECTED: Final = {
    "admission.pair": 19_794,
    "admission.retracted": 83_649,
    "admission.wide": 1_120_521,
    "admission.long": 6_575_225,
}
"""States, so that SPIN gets a table and a stack of the right size."""


@dataclass(frozen=True, slots=True)
class Run:
    """One search: states, steps to the farthest (0 where not reported), seconds, largest MiB of any process.

    `cpu` are seconds of processor time, all processes together: what a busy machine does not stretch.
    """

    engine: str
    system: str
    distinct: int
    depth: int
    seconds: float
    cpu: float
    mib: float
    note: str = ""


def own(name: str, limit: float) -> tuple[int, int, str]:
    """States, depth and a remark."""
    return _explore(name, goals=False)


def goals(name: str, limit: float) -> tuple[int, int, str]:
    """As `own`, with goals decided and edges counted."""
    return _explore(name, goals=True)


def _explore(name: str, *, goals: bool) -> tuple[int, int, str]:
    from hicache_fsm.explore import explore
    from hicache_fsm.model import system
    from hicache_fsm.spec import load_spec

    result = explore(system(load_spec(), PROFILE, name), keep_edges=goals)
    return result.distinct, result.depth, f"{result.engine}, {result.bytes_per_state:.1f} B/state"


def tlc(workers: int) -> Callable[[str, float], tuple[int, int, str]]:
    """TLC with so many workers; a run cut by the limit says how far it came."""

    def search(name: str, limit: float) -> tuple[int, int, str]:
        from dataclasses import replace

        from hicache_fsm.conform.cases import case
        from hicache_fsm.spec import load_spec
        from hicache_fsm.tlc import TlcError, locate, run

        said: list[str] = []
        job = replace(case(load_spec(), name, PROFILE).job(), workers=workers, limit_s=limit)
        try:
            found = run(locate(), job, said.append)
        except TlcError as error:
            counts = re.search(r"([\d,]+) distinct states found", said[-1] if said else "")
            if "no verdict" not in str(error) or counts is None:
                raise
            return int(counts[1].replace(",", "")), 0, f"cut after {limit:g} s"
        return found.distinct, found.depth, ""

    return search


def spin(name: str, limit: float) -> tuple[int, int, str]:
    """SPIN's verifier, depth first, its generation and compilation included."""
    from hicache_fsm.export import spin_count
    from hicache_fsm.model import system
    from hicache_fsm.spec import load_spec

    found = spin_count(system(load_spec(), PROFILE, name), EXPECTED.get(name, 10_000_000), limit_s=limit)
    return found.distinct, 0, f"{found.compiling:.1f} s of it compiling"


ENGINES: Final[dict[str, Callable[[str, float], tuple[int, int, str]]]] = {
    "own": own,
    "own, warm": own,
    "own with goals": goals,
    "SPIN": spin,
    "TLC, 1 worker": tlc(1),
    "TLC, 2 workers": tlc(2),
}


def measure(engine: str, name: str, limit: float) -> Run:
    """One run in a fresh process, with an empty cache of compiled searches, or after one that filled it."""
    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as cache:
        command = [sys.executable, __file__, "--one", engine, name, "--limit", str(limit)]
        env = {**os.environ, "XDG_CACHE_HOME": cache}
        if engine.endswith("warm"):
            subprocess.run(command, env=env, capture_output=True, check=False)
        started = time.perf_counter()
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{engine} on {name}: {done.stderr.strip()}")
    return Run(seconds=seconds, **json.loads(done.stdout.splitlines()[-1]))


def one(engine: str, name: str, limit: float) -> None:
    """Search in this process and print what came of it."""
    distinct, depth, note = ENGINES[engine](name, limit)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    said = {"engine": engine, "system": name, "distinct": distinct, "depth": depth, "note": note}
    cpu = sum(each.ru_utime + each.ru_stime for each in usage)
    print(json.dumps({**said, "cpu": cpu, "mib": max(each.ru_maxrss for each in usage) / 1024}))


def table(runs: Sequence[Run]) -> str:
    """Markdown; the ratios, of seconds and of processor time, are against the own search of the same system."""
    base = {run.system: run for run in runs if run.engine == "own"}
    head = (
        "system",
        "engine",
        "distinct",
        "depth",
        "s",
        "cpu s",
        "peak MiB",
        "times own (s)",
        "times own (cpu)",
        "",
    )
    lines = [f"| {' | '.join(head)} |", "|---|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for run in runs:
        mine, cut = base.get(run.system, run), run.note.startswith("cut")
        # A cut run would take longer by what it lacks, at the pace so far: later states are no cheaper.
        longer = mine.distinct / run.distinct if cut else 1.0
        ratios = (run.seconds / mine.seconds * longer, run.cpu / mine.cpu * longer)
        shown = (f"{'≈ ' if cut else ''}{ratio:.1f}" for ratio in ratios)
        cells = (run.system, run.engine, f"{run.distinct:,}", str(run.depth or "-"), f"{run.seconds:.1f}")
        lines.append(f"| {' | '.join((*cells, f'{run.cpu:.1f}', f'{run.mib:,.0f}', *shown, run.note))} |")
    return "\n".join(lines)


def disagreement(runs: Sequence[Run]) -> str:
    """What two complete runs of a system differ in, if any do."""
    for name in dict.fromkeys(run.system for run in runs):
        whole = [run for run in runs if run.system == name and not run.note.startswith("cut")]
        if len({run.distinct for run in whole}) > 1 or len({run.depth for run in whole if run.depth}) > 1:
            return f"{name}: " + ", ".join(f"{run.engine} {run.distinct} ({run.depth})" for run in whole)
    return ""


def main() -> int:
    """0 if all agree, 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", default=list(SIZES))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument(
        "--limit", type=float, default=0, help="most seconds of one run of TLC or SPIN; 0: none"
    )
    parser.add_argument("--json", type=Path, help="where to write the runs")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        engine, name = given.one
        one(engine, name, given.limit)
        return 0
    engines = [each for each in given.engines if each != "SPIN" or shutil.which("spin")]
    runs: list[Run] = []
    for name in given.systems:
        for engine in engines:
            runs.append(measure(engine, name, given.limit))
            print(f"{runs[-1]}", file=sys.stderr, flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n", encoding="utf-8")
    print(table(runs))
    found = disagreement(runs)
    print(f"\nDISAGREE: {found}" if found else "\nEqual counts everywhere.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
