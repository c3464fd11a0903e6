"""The real SGLang with several ranks of tensor parallelism on the CPU: one process a rank, gloo between them."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .install import DEFAULT_ROOT, env_python
from .modes import LOG, Options
from .record import child_environment, require
from .run import parse, settings_of

MODULE = ("-m", "hicache_fsm.sglang.ranked_run")


class RankFailedError(RuntimeError):
    """A rank ended otherwise than drained; the message has its last lines."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run of several ranks. Plain data, as it goes to another process; ranks are named by their digits."""

    arguments: Sequence[str] = ()
    """Of ``hicache_fsm.sglang.run``, for every rank."""
    ranks: int = 2
    plugin: Mapping[str, str] = field(default_factory=dict)
    """Variables of the plugin (docs/plugin.md); none: SGLang loads no plugin."""
    by_rank: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More arguments for one rank."""
    plants: Mapping[str, str] = field(default_factory=dict)
    """Faults put into one rank, by the names of the script that plays the case."""
    drive: str = ""
    """What rank 0 does instead of the workload, by its name in that script."""
    log: str = ""
    """The event log, a file a rank; relative to the case's own folder. Empty: none."""
    quiet: bool = True
    """SGLang's own lines are left out."""
    limit_s: float = 300.0
    """The ranks are killed after so long."""
    grace_s: float = 20.0
    """And so long after one of them has died."""

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables that this case adds to those of ``ranks_environment``."""
        cores = os.cpu_count() or 1
        storage = folder / "storage"
        storage.mkdir(exist_ok=True)
        own = {
            "SGLANG_CPU_OMP_THREADS_BIND": "|".join(str(rank % cores) for rank in range(self.ranks)),
            "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(storage),
            "SGLANG_PLUGINS": "hicache_fsm" if self.plugin or self.log else "none",
            **self.plugin,
        }
        return own | ({LOG: str(folder / self.log)} if self.log else {})


def ranks_environment(version: str, root: Path = DEFAULT_ROOT) -> dict[str, str]:
    """As ``child_environment``, with what several ranks on a CPU need besides."""
    return child_environment(version, Path(os.devnull), root) | {
        "SGLANG_NCCL_SO_PATH": os.devnull,
        # the sharded embedding is compiled, and the compiler needs the real triton
        "TORCHDYNAMO_DISABLE": "1",
    }


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def play_cases(
    version: str,
    cases: Sequence[Case],
    folder: Path,
    *,
    script: Sequence[str] = MODULE,
    root: Path = DEFAULT_ROOT,
) -> list[list[dict[str, Any]]]:
    """Play cases one after another; what each rank of each saw.

    A rank that died has ``ended`` None; ``printed`` are its lines. ``folder``, an empty one, keeps logs and storage.
    Raises ``ValueError``, ``HarnessMissingError``, or ``RankFailedError`` when SGLang cannot be imported.
    """
    require(version, root)
    named = [asdict(case) for case in cases]
    for case in named:
        case["arguments"] = ["--version", version, *case["arguments"]]
    (folder / "cases.json").write_text(json.dumps(named))
    command = [str(env_python(root)), *script, str(folder / "cases.json"), str(folder)]
    done = subprocess.run(
        command,
        env=ranks_environment(version, root),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RankFailedError(f"no rank was started: {done.stderr[-2000:]}")
    return [
        [_seen(folder / str(number), rank) for rank in range(case.ranks)] for number, case in enumerate(cases)
    ]


def _seen(folder: Path, rank: int) -> dict[str, Any]:
    told, printed = folder / f"rank{rank}.json", folder / f"rank{rank}.txt"
    seen = json.loads(told.read_text()) if told.exists() else {"rank": rank, "ended": None}
    return {**seen, "printed": printed.read_text(errors="replace").splitlines() if printed.exists() else []}


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m hicache_fsm.sglang.ranked VERSION [--ranks N] [--compare N] [arguments of the run]``.

    0 when the ranks decided alike, 1 when not, 2 when a rank ended otherwise or an option makes no sense.
    """
    parser = argparse.ArgumentParser(
        prog="python -m hicache_fsm.sglang.ranked", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("version")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--compare", type=int, default=16, help="passes between two comparisons; 0: none")
    parser.add_argument("--plugin-mode", default="observe", help="observe, enforce or strict")
    parser.add_argument("--keep", type=Path, help="folder for the ranks' logs and lines, made anew")
    own, arguments = parser.parse_known_args(argv)
    plugin = {"HICACHE_FSM_MODE": own.plugin_mode, "HICACHE_FSM_RANKS": str(own.compare)}
    case = Case(arguments, own.ranks, plugin, log="log.jsonl" if own.keep else "")
    try:
        if own.ranks < 2:
            raise ValueError(f"--ranks {own.ranks}: two at least")
        Options.of(plugin)
        require(own.version)
        settings_of(parse(["--version", own.version, *arguments]))
        with tempfile.TemporaryDirectory(prefix="hicache-fsm-ranks-") as made:
            folder = own.keep.resolve() if own.keep else Path(made)
            folder.mkdir(parents=True, exist_ok=not own.keep)
            [told] = play_cases(own.version, [case], folder)
    except (ValueError, RuntimeError, OSError) as error:
        print(f"sglang ranks: {error}", file=sys.stderr)
        return 2
    differ = False
    for rank in told:
        for line in rank["printed"]:
            if line.startswith(("WARNING hicache-fsm", "ERROR hicache-fsm", "  ")) or rank["ended"] is None:
                print(f"rank {rank['rank']}: {line}")
        print(f"rank {rank['rank']}: {rank['ended']}, {rank.get('passes')} passes, {rank.get('summary')}")
        differ |= "lockstep" in rank.get("findings", {})
    if any(rank["ended"] != "drained" for rank in told) and not differ:
        return 2
    if not differ and own.compare:
        print(f"{own.ranks} ranks decided alike in {told[0]['lockstep'][0]} comparisons")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
