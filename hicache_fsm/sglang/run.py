"""One run of the stepped scheduler, inside ``.sglang/env``: ``python -m hicache_fsm.sglang.run``.

``hicache_fsm.sglang.record.record`` starts this with the right environment; started by hand it needs
the variables that ``child_environment`` returns.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .modes import InvariantViolation
from .settings import EngineSettings, FaultPlan, IoLatency, survivable_faults

if TYPE_CHECKING:
    from .harness.workload import Session


STRICT_EXIT = 3
"""Exit code of a run that strict mode ended."""
STRICT_TOLD = "strict: "
"""What goes before the finding in its output."""


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; see ``--help``."""
    parser = argparse.ArgumentParser(
        prog="python -m hicache_fsm.sglang.run", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--version", default="0.5.23", help="SGLang version on PYTHONPATH")
    parser.add_argument("--out", type=Path, help="event log, one JSON object a line")
    parser.add_argument(
        "--outputs", type=Path, help="JSON of finish reason, tokens and admissions per request"
    )
    parser.add_argument("--report", type=Path, help="JSON of what the plugin found, repaired and left")
    parser.add_argument("--mode", default="buffer_only", choices=["buffer_only", "cache"])
    parser.add_argument("--storage", default="sim", choices=["sim", "file"])
    parser.add_argument(
        "--policy", default="wait_complete", choices=["wait_complete", "best_effort", "timeout"]
    )
    parser.add_argument(
        "--layout", default="dense", choices=["dense", "swa", "mamba"], help="pools beside the KV pool"
    )
    parser.add_argument("--window-tokens", type=int, default=32, help="window of the layout swa, in tokens")
    parser.add_argument(
        "--window-share", type=float, default=0.5, help="window pool as a share of the device pool"
    )
    parser.add_argument("--page-size", type=int, default=1, help="tokens a page")
    parser.add_argument("--pool-tokens", type=int, default=1024, help="device pool in tokens")
    parser.add_argument("--chunk-tokens", type=int, default=512, help="prefill chunk in tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--retry-interval", type=int, default=3, help="passes between a miss and its re-issue"
    )
    parser.add_argument("--retry-attempts", type=int, default=2, help="re-issues a request may spend")
    parser.add_argument("--requests", type=int, help="exactly so many requests, instead of --sessions")
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument(
        "--retract-interval", type=int, default=40, help="force a retraction every N decode steps"
    )
    parser.add_argument(
        "--host-ratio", type=float, default=2.0, help="host pool as a multiple of the device pool"
    )
    parser.add_argument(
        "--faults",
        type=float,
        nargs="?",
        const=0.2,
        default=0.0,
        metavar="SHARE",
        help="share of the storage calls that are answered late, short, wrongly or not at all",
    )
    parser.add_argument("--fault-kinds", help="only these faults, separated by commas")
    parser.add_argument(
        "--stage-aborts",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the requests aborted at a stage",
    )
    parser.add_argument("--real-time", action="store_true", help="storage answers in seconds, not in passes")
    parser.add_argument("--no-record", action="store_true", help="run without the recorder")
    parser.add_argument("--no-cache", action="store_true", help="run without any cache")
    return parser.parse_args(argv)


def settings_of(options: argparse.Namespace) -> EngineSettings:
    """Raises ``ValueError`` for an unknown version or a page size that does not fit."""
    return EngineSettings(
        version=options.version,
        mode=options.mode,
        storage=options.storage,
        policy=options.policy,
        layout=options.layout,
        window_tokens=options.window_tokens,
        window_share=options.window_share,
        page_size=options.page_size,
        pool_tokens=options.pool_tokens,
        host_ratio=options.host_ratio,
        chunk_tokens=options.chunk_tokens,
        seed=options.seed,
        cache=not options.no_cache,
        retract_interval=options.retract_interval,
        retry_interval=options.retry_interval,
        retry_attempts=options.retry_attempts,
        latency=None if options.real_time else IoLatency(),
    )


def log_to_stdout(*, quiet: bool) -> None:
    """SGLang warns of each model that it cannot import: of warnings, only this package's are shown.

    ``quiet``: of SGLang's own lines none, as it logs a traceback for each planted storage error.
    """
    if quiet:
        logging.getLogger("sglang").setLevel(logging.CRITICAL)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    ours = logging.getLogger("hicache_fsm")
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    ours.propagate = False


def main(argv: Sequence[str] | None = None) -> int:
    """Play the workload.

    0 when it drained, ``STRICT_EXIT`` with the history of the request when strict mode raised, 2 with one line
    on standard error for a wrong setting.
    """
    options = parse(argv)
    try:
        settings = settings_of(options)
        from .harness.workload import WorkloadPlan, make_sessions

        plan = WorkloadPlan(requests=options.requests, sessions=options.sessions, turns=options.turns)
        sessions = make_sessions(plan, settings.seed, settings.context_tokens)
        kinds = options.fault_kinds.split(",") if options.fault_kinds else survivable_faults(settings.version)
        faults = FaultPlan(options.faults, tuple(kinds))
        if options.faults and settings.latency is None:
            raise ValueError("--faults are counted in passes: leave out --real-time")
    except ValueError as error:
        print(f"sglang run: {error}", file=sys.stderr)
        return 2
    if settings.retract_interval:
        os.environ |= {
            "SGLANG_TEST_RETRACT": "1",
            "SGLANG_TEST_RETRACT_INTERVAL": str(settings.retract_interval),
        }
    log_to_stdout(quiet=bool(faults.share))
    return _play(options, settings, sessions, faults)


def _play(
    options: argparse.Namespace, settings: EngineSettings, sessions: list[Session], plan: FaultPlan
) -> int:
    began = time.monotonic()
    # only here: importing the engine imports SGLang
    from .harness.aborts import StageAborts
    from .harness.driver import Driver
    from .harness.faults import StorageFaults
    from .harness.stepped import SteppedScheduler

    def progress(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    def report(counts: Counter[str]) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))

    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as folder:
        engine = SteppedScheduler(settings, Path(folder))
        progress(
            f"sglang {settings.version} built, {settings.mode}, {settings.storage}, page {settings.page_size}"
        )
        faults = StorageFaults(engine, plan, settings.seed) if plan.share else None
        aborts = StageAborts(engine, options.stage_aborts, settings.seed) if options.stage_aborts else None
        plugin = getattr(engine.scheduler, "hicache_fsm", None)
        try:
            counts = Driver(engine, sessions, aborts).run(progress)
            if plugin is not None:
                plugin.audit()
        except InvariantViolation as violation:
            progress(f"{STRICT_TOLD}{violation}")
            return STRICT_EXIT
        finally:
            if plugin is not None:
                plugin.close()  # before the storage threads go: the last audit sees the engine as it ran
            engine.close()
        progress(report(counts))
        if faults is not None:
            progress(f"storage faults: {report(faults.counts)}")
        if aborts is not None:
            progress(f"aborted while: {report(aborts.counts)}")
        if plugin is not None:
            progress(f"plugin {plugin.summary()}")
            for line in plugin.keeper.leftovers():
                progress(f"left: {line}")
            if options.report:
                told = plugin.report() | {"faults": dict(faults.counts) if faults is not None else {}}
                told |= {"aborted_at": dict(aborts.counts) if aborts is not None else {}}
                options.report.write_text(json.dumps(told))
    if options.outputs:
        outputs = {
            rid: {"finish": output.finish, "tokens": output.tokens, "admitted": output.admitted}
            for rid, output in engine.outputs.items()
        }
        options.outputs.write_text(json.dumps(outputs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
