"""What the plugin adds to a pass of the real SGLang scheduler.

    python benchmarks/plugin_share.py [--rounds 3] [--sglang 0.5.23] [--sessions 32]
    python benchmarks/plugin_share.py --hooks [--sglang 0.5.23] [--sessions 32]

Needs `make sglang`. Two ways, since neither is enough alone. *Inside*: the processor time between entering a hook and
leaving it, less what the hooked function itself took and less what an empty hook measures; it holds on a busy machine.
*Against*: the same seed in a process without the plugin; the least of the rounds counts; it has everything in it, the
noise of the machine too. Own work is `get_next_batch_to_run`, `process_batch_result` and `process_input_requests` over
the passes in which the engine has requests; a whole step has the tiny model's forward pass too. Full audits have a
column of their own. `--hooks` says what each hook costs in `observe` and how often it is called.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

OWN_WORK = ("get_next_batch_to_run", "process_batch_result", "process_input_requests")
CONFIGURATIONS: dict[str, dict[str, str] | None] = {
    "without the plugin": None,
    "observe": {"HICACHE_FSM_MODE": "observe"},
    "enforce, audit every 1,000 passes": {"HICACHE_FSM_MODE": "enforce", "HICACHE_FSM_AUDIT_PASSES": "1000"},
    "observe with a log": {"HICACHE_FSM_MODE": "observe", "HICACHE_FSM_LOG": "LOG"},
}


class Inside:
    """Processor time inside the plugin's hooks; ``start`` before SGLang loads them."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        """Nanoseconds by hook."""
        self.calls: Counter[str] = Counter()
        self.empty = 0.0
        """Nanoseconds that an empty hook measures."""

    def start(self) -> None:
        from hicache_fsm.sglang.assembly import Plugin

        around, before = Plugin.around, Plugin.before
        Plugin.around = lambda plugin: {  # type: ignore[method-assign]
            target: self._around(target, hook) for target, hook in around(plugin).items()
        }
        Plugin.before = lambda plugin: {  # type: ignore[method-assign]
            target: self._before(target, touch) for target, touch in before(plugin).items()
        }
        empty = self._around("empty", lambda original: original())
        for _ in range(5000):
            empty(lambda: None)
        self.empty = self.spent.pop("empty") / self.calls.pop("empty")

    def _around(self, target: str, hook: Any) -> Any:
        def hooked(original: Any, *args: Any, **kwargs: Any) -> Any:
            inner = 0

            def timed(*args: Any, **kwargs: Any) -> Any:
                nonlocal inner
                began = time.thread_time_ns()
                try:
                    return original(*args, **kwargs)
                finally:
                    inner += time.thread_time_ns() - began

            began = time.thread_time_ns()
            try:
                return hook(timed, *args, **kwargs)
            finally:
                self.spent[target] += time.thread_time_ns() - began - inner
                self.calls[target] += 1

        return hooked

    def _before(self, target: str, touch: Any) -> Any:
        return lambda *args, **kwargs: self._around(target, lambda _: touch(*args, **kwargs))(None)

    def by_hook(self, passes: int) -> dict[str, tuple[float, float]]:
        """Calls and microseconds a pass of each hook, corrected for what measuring costs."""
        return {
            target: (calls / passes, max(0.0, self.spent[target] - calls * self.empty) / passes / 1e3)
            for target, calls in self.calls.items()
        }


def measure(version: str, sessions: int, inside: Inside) -> dict[str, Any]:
    """Microseconds of ``own`` work and of a ``step`` a pass, of an ``idle`` pass; milliseconds an ``audit``."""
    from hicache_fsm.sglang.harness.driver import Driver
    from hicache_fsm.sglang.harness.stepped import SteppedScheduler
    from hicache_fsm.sglang.harness.workload import WorkloadPlan, make_sessions
    from hicache_fsm.sglang.settings import EngineSettings

    settings = EngineSettings(version=version, retract_interval=0)
    spent = 0

    def timed(call: Any) -> Any:
        def inside(*args: Any, **kwargs: Any) -> Any:
            nonlocal spent
            began = time.thread_time_ns()
            try:
                return call(*args, **kwargs)
            finally:
                spent += time.thread_time_ns() - began

        return inside

    with tempfile.TemporaryDirectory() as folder:
        engine = SteppedScheduler(settings, Path(folder))
        for name in OWN_WORK:
            setattr(engine.scheduler, name, timed(getattr(engine.scheduler, name)))
        plan = WorkloadPlan(sessions=sessions, barrier_share=0.0)
        began = time.thread_time_ns()
        Driver(engine, make_sessions(plan, settings.seed, settings.context_tokens)).run(lambda _: None)
        whole, busy, passes = time.thread_time_ns() - began, spent, engine.passes
        hooks = inside.by_hook(passes)
        spent = 0
        for _ in range(1000):
            engine.step()
        idle = spent
        audit, plugin = 0, getattr(engine.scheduler, "hicache_fsm", None)
        if plugin is not None:
            began = time.thread_time_ns()
            plugin.audit()
            audit = time.thread_time_ns() - began
        engine.close()
    return {
        "hooks": sum(spent for _, spent in hooks.values()),
        "by_hook": hooks,
        "own": busy / passes / 1e3,
        "step": whole / passes / 1e3,
        "idle": idle / 1000 / 1e3,
        "audit": audit / 1e6,
        "passes": passes,
    }


def child(version: str, sessions: int, plugin: dict[str, str] | None, *, inside: bool) -> dict[str, Any]:
    """``measure`` in a process with the plugin's variables."""
    from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
    from hicache_fsm.sglang.record import child_environment, require

    require(version)
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            name: value.replace("LOG", f"{folder}/log.jsonl") for name, value in (plugin or {}).items()
        }
        environment = child_environment(version, Path(folder), plugin=variables or None)
        command = [str(env_python(DEFAULT_ROOT)), __file__, "--child", "--sglang", version]
        command += ["--sessions", str(sessions), *(["--inside"] if inside else [])]
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
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--hooks", action="store_true", help="what each hook costs, and no comparison")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        inside = Inside()
        if options.inside:
            inside.start()
        print(json.dumps(measure(options.sglang, options.sessions, inside)))
        return
    run = functools.partial(child, options.sglang, options.sessions)
    if options.hooks:
        tell_hooks(run(CONFIGURATIONS["observe"], inside=True))
        return
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in CONFIGURATIONS}
    for _ in range(options.rounds):
        for name, plugin in CONFIGURATIONS.items():
            told[name].append(run(plugin, inside=False))
    base = least(told["without the plugin"])
    passes = told["observe"][0]["passes"]
    print(f"sglang {options.sglang}, {passes:,.0f} passes a run, {options.rounds} rounds\n")
    print(
        "| configuration | hooks, us a pass | of own work | own work, us | against | step, us | against | audit, ms |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for name, plugin in CONFIGURATIONS.items():
        middle = least(told[name])
        own, step = (100 * (middle[key] / base[key] - 1) for key in ("own", "step"))
        hooks, share = 0.0, 0.0
        if plugin is not None:
            timed = run(plugin, inside=True)
            hooks, share = timed["hooks"], 100 * timed["hooks"] / timed["own"]
        print(
            f"| {name} | {hooks:,.0f} | {share:.1f} % | {middle['own']:,.0f} | {own:+.1f} % "
            f"| {middle['step']:,.0f} | {step:+.1f} % | {middle['audit']:.1f} |"
        )


def tell_hooks(told: dict[str, Any]) -> None:
    """The dearest hook first."""
    print(f"own work {told['own']:,.0f} us a pass, hooks {told['hooks']:.1f}\n")
    print("| hook | calls a pass | us a pass |\n|---|--:|--:|")
    for target, (calls, spent) in sorted(told["by_hook"].items(), key=lambda each: -each[1][1]):
        print(f"| {'.'.join(target.rsplit('.', 2)[1:])} | {calls:.2f} | {spent:.2f} |")


def least(runs: list[dict[str, Any]]) -> dict[str, float]:
    """The least of each figure."""
    return {key: min(run[key] for run in runs) for key in runs[0] if key != "by_hook"}


if __name__ == "__main__":
    main()
