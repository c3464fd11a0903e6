"""Plays cases on several ranks of the stepped scheduler, inside ``.sglang/env``: see ``hicache_fsm.sglang.ranked``.

SGLang is imported once. Each rank of each case is a fork of what is then there, so that a further one costs no import.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .modes import InvariantViolation
from .ranked import Case, free_port
from .run import STRICT_TOLD, log_to_stdout, parse, settings_of
from .settings import FaultPlan, survivable_faults
from .view import EngineView

if TYPE_CHECKING:
    from .harness.ranked import RankedScheduler

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl(2)."""
Plant = Callable[["RankedScheduler"], None]
"""Puts a fault into one rank's engine, for tests of what finds it."""
Drive = Callable[["RankedScheduler"], object]
"""What rank 0 does instead of playing the workload; what it returns is told as ``driven``."""


@dataclass(frozen=True, slots=True)
class Script:
    """What cases may name."""

    plants: Mapping[str, Plant] = field(default_factory=dict)
    drives: Mapping[str, Drive] = field(default_factory=dict)


def main(argv: Sequence[str] | None = None, script: Script = Script()) -> int:
    """``CASES.json FOLDER``: play each case; what its ranks saw goes to ``FOLDER/<case>/rank<n>.json``.

    A rank that died, or had to be killed, leaves no file. Always 0.
    """
    _end_with_parent()
    cases, folder = sys.argv[1:] if argv is None else argv
    importlib.import_module("sglang.srt.managers.scheduler")
    importlib.import_module(f"{__package__}.harness.ranked")
    for number, members in enumerate(json.loads(Path(cases).read_text())):
        place = Path(folder) / str(number)
        place.mkdir()
        _play_case(Case(**members), place, script)
    return 0


def _play_case(case: Case, folder: Path, script: Script) -> None:
    port = free_port()
    pids = [_fork(case, rank, port, folder, script) for rank in range(case.ranks)]
    ended: set[int] = set()
    until = time.monotonic() + case.limit_s
    while len(ended) < len(pids):
        for rank, pid in enumerate(pids):
            if rank not in ended and os.waitpid(pid, os.WNOHANG)[0]:
                ended.add(rank)
                if not (folder / f"rank{rank}.json").exists():
                    # nobody else can end what waits for it
                    until = min(until, time.monotonic() + case.grace_s)
        if time.monotonic() > until:
            for rank in set(range(case.ranks)) - ended:
                os.kill(pids[rank], signal.SIGKILL)
                os.waitpid(pids[rank], 0)
                ended.add(rank)
        time.sleep(0.01)


def _fork(case: Case, rank: int, port: int, folder: Path, script: Script) -> int:
    pid = os.fork()
    if pid:
        return pid
    _end_with_parent()
    printed = os.open(folder / f"rank{rank}.txt", os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.environ.update(case.environment(folder))
    try:
        told = play(case, rank, port, folder, script)
        (folder / f"rank{rank}.json").write_text(json.dumps(told))
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # threads that wait in a collective for a rank that has ended would keep the process alive
    os._exit(0)


def _end_with_parent() -> None:
    """A process whose starter is gone has nobody to tell."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def play(case: Case, rank: int, port: int, folder: Path, script: Script) -> dict[str, Any]:
    """Play one rank of a case to its end; what it saw."""
    from .harness.aborts import StageAborts
    from .harness.driver import Driver
    from .harness.faults import StorageFaults
    from .harness.ranked import RankedScheduler
    from .harness.workload import WorkloadPlan, make_sessions

    options = parse([*case.arguments, *case.by_rank.get(str(rank), ())])
    settings = replace(settings_of(options), heads=max(2, case.ranks))
    kinds = options.fault_kinds.split(",") if options.fault_kinds else survivable_faults(settings.version)
    plan = FaultPlan(options.faults, tuple(kinds))
    log_to_stdout(quiet=case.quiet)
    if settings.retract_interval:
        # read from the environment at import, which is over
        scheduler: Any = importlib.import_module("sglang.srt.managers.scheduler")
        scheduler.TEST_RETRACT, scheduler.TEST_RETRACT_INTERVAL = True, settings.retract_interval

    engine = RankedScheduler(settings, folder / f"model{rank}", rank=rank, ranks=case.ranks, port=port)
    # a storage of its own behind each rank: the same seed would make them fail alike
    faults = StorageFaults(engine, plan, settings.seed * 1000 + rank) if plan.share else None
    plugin = getattr(engine.scheduler, "hicache_fsm", None)
    if str(rank) in case.plants:
        script.plants[case.plants[str(rank)]](engine)
    told: dict[str, Any] = {"rank": rank, "ended": "drained"}
    began = time.process_time()
    try:
        if rank == 0:
            work = WorkloadPlan(requests=options.requests, sessions=options.sessions, turns=options.turns)
            sessions = make_sessions(work, settings.seed, settings.context_tokens)
            aborts = (
                StageAborts(engine, options.stage_aborts, settings.seed) if options.stage_aborts else None
            )
            if case.drive:
                told["driven"] = script.drives[case.drive](engine)
            else:
                told["counts"] = Driver(engine, sessions, aborts).run(print)
                told["aborted_at"] = dict(aborts.counts) if aborts is not None else {}
            engine.stop()
        else:
            engine.follow()
        if plugin is not None:
            plugin.audit()
    except InvariantViolation as violation:
        told["ended"] = f"{STRICT_TOLD}{violation}"
    except Exception as error:
        traceback.print_exc()
        told["ended"] = f"{type(error).__name__}: {error}"
    told["passes"], told["cpu_s"] = engine.passes, time.process_time() - began
    told["noted"] = engine.noted
    told["believed"] = EngineView(engine.scheduler).believed_pages() if settings.cache else 0
    told["idle"] = bool(engine.scheduler.is_fully_idle())
    told["faults"] = dict(faults.counts) if faults is not None else {}
    told["outputs"] = {
        rid: {"finish": one.finish, "tokens": one.tokens, "admitted": one.admitted}
        for rid, one in engine.outputs.items()
    }
    if plugin is not None:
        told |= plugin.report() | {"summary": plugin.summary()}
        if plugin.lockstep is not None:
            told["lockstep"] = [plugin.lockstep.compared, plugin.lockstep.differences]
        plugin.close()
    logging.shutdown()
    return told


if __name__ == "__main__":
    sys.exit(main())
