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
from collections.abc import Sequence
from pathlib import Path

from .settings import EngineSettings, IoLatency


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
    parser.add_argument("--mode", default="buffer_only", choices=["buffer_only", "cache"])
    parser.add_argument("--storage", default="sim", choices=["sim", "file"])
    parser.add_argument(
        "--policy", default="wait_complete", choices=["wait_complete", "best_effort", "timeout"]
    )
    parser.add_argument("--page-size", type=int, default=1, help="tokens a page")
    parser.add_argument("--pool-tokens", type=int, default=1024, help="device pool in tokens")
    parser.add_argument("--chunk-tokens", type=int, default=512, help="prefill chunk in tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--retry-interval", type=int, default=3, help="passes between a miss and its re-issue"
    )
    parser.add_argument("--retry-attempts", type=int, default=2, help="re-issues a request may spend")
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument(
        "--retract-interval", type=int, default=40, help="force a retraction every N decode steps"
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
        page_size=options.page_size,
        pool_tokens=options.pool_tokens,
        chunk_tokens=options.chunk_tokens,
        seed=options.seed,
        cache=not options.no_cache,
        retract_interval=options.retract_interval,
        retry_interval=options.retry_interval,
        retry_attempts=options.retry_attempts,
        latency=None if options.real_time else IoLatency(),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Play the workload; 0 when it drained, 2 with one line on standard error for a wrong setting."""
    options = parse(argv)
    try:
        settings = settings_of(options)
    except ValueError as error:
        print(f"sglang run: {error}", file=sys.stderr)
        return 2
    if settings.retract_interval:
        os.environ |= {
            "SGLANG_TEST_RETRACT": "1",
            "SGLANG_TEST_RETRACT_INTERVAL": str(settings.retract_interval),
        }
    logging.disable(logging.WARNING)  # SGLang warns of each model that it cannot import
    began = time.monotonic()
    # only here: importing the harness imports SGLang
    from .harness.stepped import SteppedScheduler
    from .harness.workload import Driver, WorkloadPlan, make_sessions

    def progress(line: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {line}", flush=True)

    plan = WorkloadPlan(sessions=options.sessions, turns=options.turns)
    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as folder:
        engine = SteppedScheduler(settings, Path(folder))
        progress(
            f"sglang {settings.version} built, {settings.mode}, {settings.storage}, page {settings.page_size}"
        )
        try:
            counts = Driver(engine, make_sessions(plan, settings.seed, settings.context_tokens)).run(progress)
        finally:
            engine.close()
    progress(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    if options.outputs:
        outputs = {
            rid: {"finish": output.finish, "tokens": output.tokens, "admitted": output.admitted}
            for rid, output in engine.outputs.items()
        }
        options.outputs.write_text(json.dumps(outputs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
