"""SPIN's verifier on a system: depth first, without partial-order reduction, every reachable state stored."""

import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hicache_fsm.export.promela import promela
from hicache_fsm.model.system import System

FLAGS: Final = ("-O2", "-w", "-DSAFETY", "-DNOREDUCE", "-DNOFAIR")
STORED: Final = re.compile(r"(\d+) states, stored")
MEND: Final = "apt-get install spin gcc, or what your system calls them"


class SpinError(Exception):
    """SPIN cannot be had, or gave no count: one line that says why, and the mend."""


@dataclass(frozen=True, slots=True)
class SpinRun:
    """What SPIN stored: `distinct` states, `seconds` in all, `compiling` of them for its verifier."""

    distinct: int
    seconds: float
    compiling: float


def require_spin() -> None:
    """Raises SpinError if SPIN or a C compiler is missing."""
    missing = [name for name in ("spin", "cc") if shutil.which(name) is None]
    if missing:
        raise SpinError(f"{' and '.join(missing)} not found: {MEND}")


def spin_count(
    system: System, expected: int = 1_000_000, memory: int = 1 << 36, limit_s: float = 0
) -> SpinRun:
    """Store all states of `system`, of which about `expected` are there, in at most `memory` bytes.

    Raises SpinError if SPIN or a C compiler is missing, or if time, memory or depth did not suffice.
    """
    require_spin()
    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as name:
        folder = Path(name)
        (folder / "model.pml").write_text(promela(system), encoding="utf-8")
        started = time.perf_counter()
        _call(folder, limit_s, "spin", "-a", "model.pml")
        _call(folder, limit_s, "cc", *FLAGS, f"-DMEMLIM={max(1, memory >> 20)}", "-o", "pan", "pan.c")
        compiled = time.perf_counter()
        # The stack may hold every state; the table is best when it has a slot for each.
        depth, bits = expected + 1000, max(16, min(expected.bit_length(), 28))
        said = _call(folder, limit_s, "./pan", f"-m{depth}", f"-w{bits}", "-n")
        ended = time.perf_counter()
    found = STORED.search(said)
    if found is None or "too small" in said or "reached -DMEMLIM" in said or "out of memory" in said:
        raise SpinError(f"{system.configuration}: SPIN did not finish: {_last(said)}")
    return SpinRun(int(found[1]), ended - started, compiled - started)


def _call(folder: Path, limit_s: float, *command: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True, timeout=limit_s or None
        )
    except subprocess.TimeoutExpired:
        raise SpinError(
            f"SPIN took more than {limit_s:g} seconds: give it more, or lower the bounds"
        ) from None
    except subprocess.CalledProcessError as error:
        raise SpinError(f"{command[0]} failed: {_last(error.stderr or error.stdout)}") from error
    return done.stdout


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"
