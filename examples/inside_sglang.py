"""A lifecycle inside the real SGLang scheduler's loop, on a CPU, and whether the two agree on each pass.

    make sglang                             # lays the real SGLang out, once
    python examples/inside_sglang.py        # half a minute; --sessions and --seed

The scheduler, its radix tree, its controller threads and its storage are SGLang's own, from the wheel. The plugin
tells what they do as events; `Follower` gives them to a `HiCacheLifecycle` under the profile of that version. The
lifecycle sweeps its own markers at the moment at which SGLang sweeps its own, so that whom to ask again, and when,
is decided twice; after each pass everything that both know is compared, request by request.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hicache_fsm.runtime import Anchor, AttemptKey, HiCacheLifecycle, IllegalTransition
from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, require
from hicache_fsm.sglang.settings import EngineSettings

VERSION = "0.5.23"
IN_FLIGHT = ("probing", "retrying", "parked", "transferring")
ARMED = ("missed", "pending")


class Follower:
    """A sink of the plugin: each event of the engine becomes a call of the lifecycle.

    `differences` says where the two do not agree, one line each; `counts` what was compared.
    """

    def __init__(self) -> None:
        self.life: HiCacheLifecycle
        self.keys: dict[str, AttemptKey] = {}
        self.offered: set[str] = set()
        self.anchors: dict[str, Anchor | None] = {}
        self.counts: Counter[str] = Counter()
        self.differences: list[str] = []
        self.lost = False

    # what the plugin tells

    def engine(self, header: Mapping[str, Any]) -> None:
        """The lifecycle gets the engine's own rules and sizes."""
        self.life = HiCacheLifecycle(
            header["profile"],
            pool_tokens=header["pool_tokens"],
            max_context_len=header["pool_tokens"] - header["pin_cap_tokens"],
            page_size=header["page_size"],
            interval=header["constants"]["interval"],
            max_attempts=header["constants"]["max_attempts"],
            mode=header["mode"],
            monitor=True,
        )
        self.same("pin cap", self.life.settings.pin_cap, header["pin_cap_tokens"])

    def transition(self, pass_: int, machine: str, event: str, rid: str, members: Mapping[str, Any]) -> None:
        """One event: the same for the lifecycle, which is followed no further once it refuses one."""
        if self.lost:
            return
        self.counts["events"] += 1
        try:
            self.take(machine, event, rid, members)
        except IllegalTransition as refused:
            self.lost = True
            self.differences.append(f"SGLang did what the lifecycle refuses: {refused}")

    def take(self, machine: str, event: str, rid: str, members: Mapping[str, Any]) -> None:
        """The call that the event stands for; docs/event-log.md has the words."""
        if machine == "pin" and event == "pin":
            on_device = members["why"] != "anchor_lost"
            tokens = members.get("tokens")
            self.anchors[rid] = Anchor(rid, tokens, on_device) if tokens else None
        elif machine == "operation":
            end = self.life.missed if event == "stale" else self.life.failed
            end(self.keys[rid], members["op"])
        elif machine == "prefetch":
            getattr(self, event)(rid, members)

    def totals(self, pass_: int, totals: Any) -> None: ...

    def violation(self, finding: Any) -> None:
        self.differences.append(f"the plugin finds: {finding}")

    def repair(self, repair: Any) -> None: ...

    def audit(self, audit: Any) -> None: ...

    def close(self) -> None: ...

    # the events of the prefetch machine

    def enqueue(self, rid: str, members: Mapping[str, Any]) -> None:
        if again := members.get("again"):
            key = self.life.retract(self.keys[rid], again)
        else:
            key = self.life.enqueue(rid, members["tokens"])
        self.keys[rid] = key
        self.same(f"attempt of {rid}", key.attempt, members["attempt"])

    def issue(self, rid: str, members: Mapping[str, Any]) -> None:
        asks = members["facts"]["asks"]
        why = "" if asks else members["why"]
        op = self.life.issue(self.keys[rid], asks=asks, why=why, tokens=members.get("tokens", 0))
        self.same(f"question of {rid}", op, members.get("op"))

    def sweep(self, rid: str, members: Mapping[str, Any]) -> None:
        """Markers that SGLang consumes the lifecycle has consumed itself; re-issues must be those it offered."""
        if "asks" in members["facts"]:
            self.same(f"offer to {rid}", rid in self.offered, True)
            self.offered.discard(rid)
            self.issue(rid, members)

    def lose_match(self, rid: str, members: Mapping[str, Any]) -> None:
        asks = members.get("op") is not None
        why = "" if asks else members.get("why", "")
        op = self.life.lose_match(self.keys[rid], asks=asks, why=why, tokens=members.get("tokens", 0))
        self.same(f"question of {rid}", op, members.get("op"))

    def hit(self, rid: str, members: Mapping[str, Any]) -> None:
        room = members["facts"]["room"]
        anchor = self.anchors.pop(rid, None)
        self.life.hit(
            self.keys[rid],
            members["op"],
            members["tokens"],
            members["wanted_tokens"],
            room,
            members.get("why", ""),
            anchor if room else None,
        )

    def unpark(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.unparked(self.keys[rid], self.anchors.pop(rid, None))

    def miss(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.missed(self.keys[rid], members["op"], members["why"])

    def done(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.loaded(self.keys[rid], members["op"], members["tokens"])

    def fail(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.failed(self.keys[rid], members["op"], members["why"])

    def cut(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.cut(self.keys[rid], members.get("tokens", 0))

    def expire(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.expire(self.keys[rid], members.get("tokens", 0))

    def lose_anchor(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.lose_anchor(self.keys[rid])

    def revoke(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.revoke(self.keys[rid], members["why"])

    def shrink(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.shrink(self.keys[rid])

    def admit(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.admit(self.keys[rid])

    def abort(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.abort(self.keys[rid], members["why"])

    def retract(self, rid: str, members: Mapping[str, Any]) -> None:
        """Told again by the `enqueue` that follows."""

    def finish(self, rid: str, members: Mapping[str, Any]) -> None:
        self.life.finish(self.keys[rid])

    # inside the loop

    def enter(self, scheduler: Any) -> None:
        """From here on the lifecycle sweeps whenever the scheduler is about to."""
        sweep = scheduler._process_storage_prefetch_retries

        def sweep_both() -> None:
            if not self.lost:
                head = scheduler.waiting_queue[0].rid if scheduler.waiting_queue else None
                offers = self.life.begin_pass(head=self.keys[head] if head is not None else None)
                self.offered = {key.rid for key in offers}
                self.counts.update({"sweeps": 1, "re-issues": len(offers)})
            sweep()
            self.same("offers that SGLang did not take", self.offered, set())

        scheduler._process_storage_prefetch_retries = sweep_both

    def compare(self, view: Any) -> None:
        """After a pass: the queue, and everything that engine and lifecycle both know of who is in it."""
        if self.lost:
            return
        queue = view.scheduler.waiting_queue
        self.same("waiting", self.life.waiting, len(queue))
        for request in queue:
            key, seen = self.keys[request.rid], view.seen(request, True)
            state = self.life.state(key)
            self.same(f"{key} in flight", state in IN_FLIGHT, seen["entry"])
            self.same(f"{key} armed", state in ARMED, seen["armed"])
            self.same(f"{key} parked", state == "parked", seen["parked"])
            self.same(f"{key} loaded", state == "loaded", seen["hold"])
            self.same(f"{key} re-issues spent", self.life.spent(key), seen["spent"])
        self.same("markers", sum(self.life.state(self.keys[r.rid]) in ARMED for r in queue), view.markers())
        self.same("tokens pinned", self.life.pinned_tokens, view.pinned_tokens)
        self.counts["passes"] += 1

    def same(self, what: str, here: object, there: object) -> None:
        """Count one comparison, and note a difference."""
        self.counts["comparisons"] += 1
        if here != there and not self.lost:
            passes = self.life.now
            self.differences.append(f"pass {passes}: {what}: the lifecycle has {here}, SGLang {there}")


def follow(sessions: int, seed: int) -> Follower:
    """Play a workload on the real scheduler, in this process, with a lifecycle beside it."""
    from hicache_fsm.sglang.plugin import install

    logging.disable(logging.WARNING)  # SGLang warns of each model that it cannot import
    follower = Follower()
    plugin = install("observe", sinks=[follower])
    os.environ |= {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "40"}

    from hicache_fsm.sglang.harness.driver import Driver
    from hicache_fsm.sglang.harness.stepped import SteppedScheduler
    from hicache_fsm.sglang.harness.workload import WorkloadPlan, make_sessions
    from hicache_fsm.sglang.view import EngineView

    with tempfile.TemporaryDirectory() as folder:
        settings = EngineSettings(version=VERSION, seed=seed, retract_interval=40)
        engine = SteppedScheduler(settings, Path(folder))
        follower.enter(engine.scheduler)
        view, step = EngineView(engine.scheduler), engine.step

        def step_and_compare() -> list[str]:
            admitted = step()
            follower.compare(view)
            return admitted

        engine.step = step_and_compare
        plan = WorkloadPlan(sessions=sessions)
        try:
            ended = Driver(engine, make_sessions(plan, settings.seed, settings.context_tokens)).run(print)
        finally:
            engine.close()
        plugin.close()
    if plugin.guard.failed:
        follower.differences.append("the plugin switched itself off")
    follower.same("idle", follower.life.idle, True)
    follower.counts |= {"requests": sum(ended.values()) - ended["passes"], **follower.life.misses}
    return follower


def main() -> int:
    """0 if lifecycle and engine agreed on every pass, 1 if not, 2 if SGLang is not laid out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if "SGLANG_USE_CPU_ENGINE" not in os.environ:
        try:
            require(VERSION)
        except HarnessMissingError as missing:
            print(missing, file=sys.stderr)
            return 2
        with tempfile.TemporaryDirectory() as storage:
            environment = child_environment(VERSION, Path(storage))
            command = [str(env_python(DEFAULT_ROOT)), __file__, *sys.argv[1:]]
            child = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if child.returncode:
            print(child.stderr[max(0, child.stderr.find("Traceback")) :], file=sys.stderr)
        return child.returncode
    follower = follow(options.sessions, options.seed)
    counts = follower.counts
    print(
        f"SGLang {VERSION}: {counts['requests']} requests, {counts['events']} events in {counts['passes']} passes"
    )
    print(f"  {counts['sweeps']} sweeps by both, {counts['re-issues']} re-issues decided by both")
    print(f"  {counts['comparisons']} comparisons, {len(follower.differences)} differences")
    found = Counter(violation.invariant for violation in follower.life.check())
    print(f"  invariants broken: {', '.join(map('{0[0]} {0[1]}'.format, found.items())) or 'none'}")
    for difference in follower.differences[:20]:
        print(difference)
    return 1 if follower.differences else 0


if __name__ == "__main__":
    sys.exit(main())
