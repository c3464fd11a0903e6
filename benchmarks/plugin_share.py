"""What the plugin adds to a pass of the real SGLang scheduler.

    python benchmarks/plugin_share.py [--rounds 3] [--sglang 0.5.23] [--load tiny] [--load busy]
    python benchmarks/plugin_share.py --hooks [--configuration observe] [--sglang 0.5.23] [--load busy]

Needs `make sglang`. Two loads: `tiny` has four running requests of some 200 tokens, `busy` up to 32 of 500 to 1,500.
Two ways of measuring, since neither is enough alone. *Inside*: the processor time between entering a hook and leaving
it, less what the hooked function itself took and less what an empty hook measures, and for each call what SGLang's own
wrapper costs; it holds on a busy machine. *Against*: the same seed in a process without the plugin; it has everything
in it, the noise of the machine too. Of the rounds the least counts, for shares the middle. Own work is
`get_next_batch_to_run`, `process_batch_result` and `process_input_requests`, without the plugin's hooks, over the
passes in which the engine has requests; a whole step has the model's forward pass too. Full audits have a column of
their own.
`--hooks` says what each hook costs and how often it is called.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hicache_fsm.sglang.settings import EngineSettings, IoLatency

OWN_WORK = ("get_next_batch_to_run", "process_batch_result", "process_input_requests")
CONFIGURATIONS: dict[str, dict[str, str] | None] = {
    "without the plugin": None,
    "observe": {"HICACHE_FSM_MODE": "observe"},
    "enforce, audit every 1,000 passes": {"HICACHE_FSM_MODE": "enforce", "HICACHE_FSM_AUDIT_PASSES": "1000"},
    "observe, judged on each pass": {"HICACHE_FSM_MODE": "observe", "HICACHE_FSM_EVERY": "1"},
    "observe with a log": {"HICACHE_FSM_MODE": "observe", "HICACHE_FSM_LOG": "LOG"},
}
IDLE_PASSES = 1000
clock = time.thread_time_ns


@dataclass(frozen=True, slots=True)
class Load:
    """A workload: fields of ``EngineSettings`` and of ``WorkloadPlan``."""

    engine: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)


LOADS = {
    "tiny": Load(plan={"sessions": 32}),
    "busy": Load(
        engine={
            "latency": IoLatency(exists=0, read=1, write=1),
            "pool_tokens": 24_576,
            "context_tokens": 2_048,
            "chunk_tokens": 4_096,
            "max_running": 32,
            "retry_interval": 8,
            "retry_attempts": 8,
        },
        plan={
            "sessions": 64,
            "turns": 3,
            "shared_tokens": 256,
            "turn_tokens": (250, 400),
            "output_tokens": (16, 64),
            "stagger": 1,
        },
    ),
}


class Inside:
    """Processor time inside the plugin's hooks; ``start`` before SGLang loads them."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        """Nanoseconds by hook."""
        self.calls: Counter[str] = Counter()
        self.total = 0
        """Nanoseconds in all hooks, the measuring included."""
        self.empty = 0.0
        """Nanoseconds that an empty hook measures."""
        self.wrapper = 0.0
        """Nanoseconds of SGLang's wrapper around one call."""

    def start(self) -> None:
        from sglang.srt.plugins.hook_registry import HookType, _wrap_fn

        from hicache_fsm.sglang.assembly import Plugin

        around, before = Plugin.around, Plugin.before
        Plugin.around = lambda plugin: {  # type: ignore[method-assign]
            target: self._around(target, hook) for target, hook in around(plugin).items()
        }
        Plugin.before = lambda plugin: [  # type: ignore[method-assign]
            (target, self._before(target, touch)) for target, touch in before(plugin)
        ]
        empty = self._around("empty", lambda original: original())
        for _ in range(5000):
            empty(nothing)
        self.empty = self.spent.pop("empty") / self.calls.pop("empty")
        self.total = 0
        wrapped = _wrap_fn(nothing, nothing, HookType.BEFORE)
        self.wrapper = least_ns(lambda: wrapped(1)) - 2 * least_ns(lambda: nothing(1))

    def _around(self, target: str, hook: Any) -> Any:
        def hooked(original: Any, *args: Any, **kwargs: Any) -> Any:
            inner = 0

            def timed(*args: Any, **kwargs: Any) -> Any:
                nonlocal inner
                began = clock()
                try:
                    return original(*args, **kwargs)
                finally:
                    clock()
                    inner += clock() - began

            # the first reading after a forward pass finds the clock's own code out of the caches
            clock()
            began = clock()
            try:
                return hook(timed, *args, **kwargs)
            finally:
                spent = clock() - began - inner
                self.spent[target] += spent
                self.total += spent
                self.calls[target] += 1

        return hooked

    def _before(self, target: str, touch: Any) -> Any:
        return lambda *args, **kwargs: self._around(target, lambda _: touch(*args, **kwargs))(None)


def by_hook(
    spent: Counter[str], calls: Counter[str], empty: float, passes: int
) -> dict[str, tuple[float, float]]:
    """Calls and microseconds a pass of each hook, corrected for what measuring costs."""
    return {
        target: (count / passes, max(0.0, spent[target] - count * empty) / passes / 1e3)
        for target, count in calls.items()
    }


def nothing(*_: Any) -> None:
    """The least that a hook can do."""


def least_ns(call: Callable[[], object]) -> float:
    """Nanoseconds of a call, at best."""
    best = float("inf")
    for _ in range(500):
        began = time.perf_counter_ns()
        for _ in range(100):
            call()
        best = min(best, (time.perf_counter_ns() - began) / 100)
    return best


def measure(version: str, load: Load, inside: Inside) -> dict[str, Any]:
    """Microseconds of ``own`` work and of a ``step`` a pass, of an ``idle`` pass; milliseconds an ``audit``.

    ``hooks`` and ``wrappers`` are microseconds a pass, ``own`` is without the hooks; ``own_middle`` is the middle
    over the passes that run a batch.
    """
    from hicache_fsm.sglang.harness.driver import Driver
    from hicache_fsm.sglang.harness.stepped import SteppedScheduler
    from hicache_fsm.sglang.harness.workload import WorkloadPlan, make_sessions

    settings = EngineSettings(version=version, retract_interval=0, **load.engine)
    spent = 0
    own: list[int] = []
    hooked: list[int] = []
    """Nanoseconds in hooks by pass, the measuring included."""
    running: list[int] = []
    """Requests in the batch by pass."""
    alive = 0
    """Passes up to the last that had a request."""
    marked: dict[str, Counter[str]] = {"spent": Counter(), "calls": Counter()}

    def timed(call: Any) -> Any:
        def inside(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            began = clock()
            try:
                return call(*args, **kwargs)
            finally:
                spent += clock() - began

        return inside

    def counted(step: Any) -> Any:
        def counted_step() -> Any:
            nonlocal spent, alive
            told = step()
            batch = engine.scheduler.last_batch
            running.append(0 if batch is None else len(batch.reqs))
            own.append(spent - inside.total)
            hooked.append(inside.total)
            if batch is not None or engine.scheduler.waiting_queue:
                alive = len(own)
                marked.update(spent=Counter(inside.spent), calls=Counter(inside.calls))
            spent = inside.total = 0
            return told

        return counted_step

    with tempfile.TemporaryDirectory() as folder:
        engine = SteppedScheduler(settings, Path(folder))
        for name in OWN_WORK:
            setattr(engine.scheduler, name, timed(getattr(engine.scheduler, name)))
        if "HICACHE_FSM_MODE" in os.environ and not hasattr(engine.scheduler, "hicache_fsm"):
            sys.exit("SGLang did not load the plugin: see its log above")
        engine.step = counted(engine.step)  # type: ignore[method-assign]
        plan = WorkloadPlan(**{"barrier_share": 0.0, **load.plan})
        inside.spent.clear()
        inside.calls.clear()
        inside.total = 0
        began = clock()
        Driver(engine, make_sessions(plan, settings.seed, settings.context_tokens)).run(lambda _: None)
        whole, passes = clock() - began, engine.passes
        hooks = by_hook(marked["spent"], marked["calls"], inside.empty, alive)
        for _ in range(IDLE_PASSES):
            engine.step()
        audit, plugin = 0, getattr(engine.scheduler, "hicache_fsm", None)
        if plugin is not None:
            began = clock()
            plugin.audit()
            audit = clock() - began
        engine.close()
    busy = [index for index in range(alive) if running[index]]
    idle = statistics.median(own[passes:]) + statistics.median(hooked[passes:])
    return {
        "hooks": sum(microseconds for _, microseconds in hooks.values()),
        "wrappers": marked["calls"].total() * inside.wrapper / alive / 1e3,
        "by_hook": hooks,
        "own": sum(own[:alive]) / alive / 1e3,
        "own_middle": statistics.median(own[index] for index in busy) / 1e3,
        "step": whole / passes / 1e3,
        "idle": idle / 1e3,
        "audit": audit / 1e6,
        "passes": alive,
        "working": len(busy),
        "running": statistics.mean(running[index] for index in busy),
    }


def child(version: str, load: str, plugin: dict[str, str] | None, *, inside: bool) -> dict[str, Any]:
    """``measure`` in a process with the plugin's variables."""
    from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
    from hicache_fsm.sglang.record import child_environment, require

    require(version)
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            name: value.replace("LOG", f"{folder}/log.jsonl") for name, value in (plugin or {}).items()
        }
        environment = child_environment(version, Path(folder), plugin=variables or None)
        command = [str(env_python(DEFAULT_ROOT)), __file__, "--child", "--sglang", version, "--load", load]
        command += ["--inside"] if inside else []
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"the measurement ended with {done.returncode}: {done.stderr[-800:]}")
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each configuration")
    parser.add_argument("--sglang", default="0.5.23")
    parser.add_argument(
        "--load", action="append", choices=LOADS, help="more than once for several; default both"
    )
    parser.add_argument("--hooks", action="store_true", help="what each hook costs, and no comparison")
    parser.add_argument(
        "--configuration", default="observe", choices=[*CONFIGURATIONS][1:], help="for --hooks"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    loads = options.load or [*LOADS]
    if options.child:
        inside = Inside()
        if options.inside:
            inside.start()
        print(json.dumps(measure(options.sglang, LOADS[loads[0]], inside)))
        return
    for load in loads:
        if options.hooks:
            plugin = CONFIGURATIONS[options.configuration]
            runs = [child(options.sglang, load, plugin, inside=True) for _ in range(options.rounds)]
            tell_hooks(load, min(runs, key=lambda run: run["hooks"]))
        else:
            compare(options.sglang, load, options.rounds)


def compare(version: str, load: str, rounds: int) -> None:
    """One table: a row a configuration."""
    run = functools.partial(child, version, load)
    plain: dict[str, list[dict[str, Any]]] = {name: [] for name in CONFIGURATIONS}
    timed: dict[str, list[dict[str, Any]]] = {name: [] for name in CONFIGURATIONS}
    for _ in range(rounds):
        for name, plugin in CONFIGURATIONS.items():
            plain[name].append(run(plugin, inside=False))
            if plugin is not None:
                timed[name].append(run(plugin, inside=True))
    base = least(plain["without the plugin"])
    print(
        f"\nsglang {version}, {load}: {base['passes']:,.0f} passes, {base['working']:,.0f} of them run a batch of "
        f"{base['running']:.1f} requests in the mean; own work {base['own_middle']:,.0f} us in the middle one of "
        f"those; {rounds} rounds\n"
    )
    print(
        "| configuration | hooks, us a pass | wrappers, us | of own work | own work, us | against | step, us | against "
        "| idle pass, us | audit, ms |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, runs in plain.items():
        best = least(runs)
        own, step = (100 * (best[key] / base[key] - 1) for key in ("own", "step"))
        hooks = wrappers = share = 0.0
        if timed[name]:
            shares = [(one["hooks"] + one["wrappers"]) / one["own"] for one in timed[name]]
            share = 100 * statistics.median(shares)
            hooks, wrappers = least(timed[name])["hooks"], least(timed[name])["wrappers"]
        print(
            f"| {name} | {hooks:,.1f} | {wrappers:.1f} | {share:.1f} % | {best['own']:,.0f} | {own:+.1f} % "
            f"| {best['step']:,.0f} | {step:+.1f} % | {best['idle']:.1f} | {best['audit']:.1f} |"
        )


def tell_hooks(load: str, told: dict[str, Any]) -> None:
    """The dearest hook first."""
    share = 100 * (told["hooks"] + told["wrappers"]) / told["own"]
    print(
        f"\n{load}: own work {told['own']:,.0f} us a pass, hooks {told['hooks']:.1f}, wrappers {told['wrappers']:.1f}: "
        f"{share:.1f} %; {told['passes']:,} passes, {told['running']:.1f} requests in a batch\n"
    )
    print("| hook | calls a pass | us a pass |\n|---|--:|--:|")
    for target, (calls, spent) in sorted(told["by_hook"].items(), key=lambda each: -each[1][1]):
        print(f"| {'.'.join(target.rsplit('.', 2)[1:])} | {calls:.2f} | {spent:.2f} |")


def least(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The least of each figure."""
    return {key: min(run[key] for run in runs) for key in runs[0] if key != "by_hook"}


if __name__ == "__main__":
    main()
