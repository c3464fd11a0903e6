"""Plants leaks in a real SGLang, one after another, and says what each mode of the plugin makes of them.

Runs inside `.sglang/env`: ``planted_leaks.py VERSION [PLANT]``. Prints one JSON document, ``{plant: {...}}`` with
``warned`` and ``left`` in observe, then ``repaired`` and ``left_repaired`` after a change to enforce, then
``raised`` in strict, and ``at_once``: what enforce repaired without a change of mode.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hicache_fsm.sglang.harness.aborts import StageAborts
from hicache_fsm.sglang.harness.stepped import SteppedScheduler
from hicache_fsm.sglang.modes import InvariantViolation, Mode
from hicache_fsm.sglang.settings import EngineSettings
from hicache_fsm.sglang.view import key_of

Undo = Callable[[], None]


class Warnings(logging.Handler):
    """Keeps the plugin's lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """``make`` gets the method and gives what takes its place; on the instance, inside the plugin's hooks."""
    original = getattr(owner, name)
    own = name in vars(owner)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)


class Bench:
    """One engine whose storage knows a prompt, and requests that are led to a stage."""

    def __init__(self, version: str, folder: Path, **settings: Any) -> None:
        self.engine = SteppedScheduler(EngineSettings(version=version, pool_tokens=2048, **settings), folder)
        self.plugin = self.engine.scheduler.hicache_fsm
        self.tree = self.engine.scheduler.tree_cache
        self.pipeline = self.tree.buffer_pipeline
        self.controller = self.tree.cache_controller
        self.allocator = self.engine.scheduler.token_to_kv_pool_allocator
        self.stages = StageAborts(self.engine, 0.0, 0)
        self.base = list(range(3, 51))
        self.stored = [*self.base, *range(60, 160)]
        self.count = 0
        self.fillers: list[str] = []
        self.finish(self.stored, 2)

    def empty_device(self) -> None:
        """Evict all: storage alone knows the prompts."""
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        self.tree.evict(EvictParams(num_tokens=self.engine.settings.pool_tokens))

    def finish(self, prompt: list[int], new: int) -> str:
        rid = self.submit(prompt, new)
        self.engine.drain()
        return rid

    def fresh(self, length: int) -> list[int]:
        """A prompt that nothing has seen."""
        return [200 + self.count % 100, 200 + self.count // 100, *range(300, 300 + length)]

    def settle(self) -> None:
        """Run until idle, or for long enough where a leak keeps the engine from ever being idle."""
        while self.fillers:
            self.engine.abort(self.fillers.pop())
        for _ in range(30):
            if self.engine.idle and not self.engine.clock.busy:
                return
            self.engine.step()

    def submit(self, prompt: list[int], new: int = 2) -> str:
        self.count += 1
        self.engine.submit(f"r{self.count}", prompt, max_new_tokens=new)
        return f"r{self.count}"

    def stage_of(self, rid: str) -> str | None:
        return next((stage for request, stage in self.stages._stages() if request.rid == rid), None)

    def lead_to(self, stage: str) -> str:
        """A request of the stored prompt that stands at ``stage``, its base pinned on the device."""
        self.empty_device()
        self.finish(self.base, 2)
        for _ in range(4):
            self.fillers.append(self.submit(self.fresh(10), 40))
        for _ in range(3):
            self.engine.step()
        rid = self.submit([*self.stored, 170], 2)
        for _ in range(60):
            if self.stage_of(rid) == stage:
                return rid
            self.engine.step()
        raise AssertionError(f"{rid} never came to stand at {stage}")


def in_abort(bench: Bench, name: str, leak: Callable[[Any, Any], Any]) -> Any:
    """A plant that replaces a method of the pipeline, for the first key that aborts only."""

    def make(original: Any) -> Any:
        done: list[Any] = []

        def leaking(key: Any, *args: Any, **kwargs: Any) -> Any:
            if not done:
                done.append(key)
                return leak(original, key)
            return original(key, *args, **kwargs)

        return leaking

    return patched(bench.pipeline, name, make)


def aborted(stage: str, plant: Callable[[Bench, str], Any]) -> Callable[[Bench], None]:
    """A leak while a request at ``stage`` is aborted."""

    def play(bench: Bench) -> None:
        rid = bench.lead_to(stage)
        with plant(bench, rid):
            bench.engine.abort(rid)
        for _ in range(3):
            bench.engine.step()

    return play


@contextlib.contextmanager
def afterwards(leak: Callable[[], None]) -> Iterator[None]:
    yield
    leak()


def key(bench: Bench, rid: str) -> Any:
    return next(key_of(request) for request in bench.engine.scheduler.waiting_queue if request.rid == rid)


def keep(table: dict[Any, Any], name: Any) -> Any:
    """What a table holds under a name is put back afterwards."""
    value = table[name]
    return afterwards(lambda: table.__setitem__(name, value))


def arm(bench: Bench, rid: str) -> None:
    retries = getattr(bench.tree, "storage_prefetch_retries", None)
    if retries is None:
        bench.tree._storage_prefetch_missed_rids.add(rid)
    else:
        retries.poll_miss(rid)


def marker_left_on_admission(bench: Bench) -> None:
    rid = bench.submit(bench.fresh(30), 30)
    while not bench.engine.outputs[rid].admitted:
        bench.engine.step()
    arm(bench, rid)
    for _ in range(3):
        bench.engine.step()


def skipped_once(original: Any, _key: Any) -> None:
    return None


def occupancy_kept(bench: Bench, rid: str) -> Any:
    controller = bench.tree.cache_controller
    return afterwards(
        lambda: setattr(controller, "prefetch_tokens_occupied", controller.prefetch_tokens_occupied + 33)
    )


def write_refused(bench: Bench) -> None:
    """Storage refuses a write, and the engine believes it."""
    backend = bench.tree.cache_controller.storage_backend
    with (
        patched(backend, "batch_set_v1", lambda original: lambda keys, *_: [False] * len(keys)),
        patched(backend, "batch_set", lambda original: lambda *_, **__: False),
    ):
        bench.finish(bench.fresh(30), 2)


PLANTS: dict[str, Callable[[Bench], None]] = {
    "pin": aborted("staged", lambda bench, rid: in_abort(bench, "release_anchor_lock", skipped_once)),
    "hold": aborted(
        "staged", lambda bench, rid: in_abort(bench, "release_staged_hold", lambda original, key: True)
    ),
    "context": aborted("transferring", lambda bench, rid: in_abort(bench, "pop_prefix_ctx", skipped_once)),
    "credit": aborted(
        "staged",
        lambda bench, rid: keep(bench.tree.prefetch_loaded_tokens_by_reqid, key(bench, rid)),
    ),
    "entry": aborted("asking", lambda bench, rid: patched(bench.tree, "revoke_pending_prefetch", forgotten)),
    "unseen exit": aborted(
        "asking", lambda bench, rid: patched(bench.tree, "release_aborted_request", forgotten)
    ),
    "occupancy": aborted("staged", occupancy_kept),
    "marker": marker_left_on_admission,
    "belief": write_refused,
    "host_pages": aborted("staged", lambda bench, rid: unfreed(bench)),
}


def forgotten(_original: Any) -> Any:
    """In place of a method: nothing."""
    return lambda *_, **__: None


def unfreed(bench: Bench) -> Any:
    """Staging that is dropped is not given back to its pool."""
    return patched(bench.pipeline, "_free_staging_now", forgotten)


def judge(bench: Bench, plant: str, heard: Warnings) -> dict[str, Any]:
    keeper = bench.plugin.keeper

    def play(mode: Mode) -> str | None:
        keeper.change(dataclasses.replace(keeper.options, mode=mode))
        keeper.repairs.clear()
        heard.lines.clear()
        try:
            PLANTS[plant](bench)
            bench.settle()
            bench.plugin.audit()
        except InvariantViolation as violation:
            return str(violation)
        return None

    def mend() -> dict[str, int]:
        keeper.change(dataclasses.replace(keeper.options, mode=Mode.ENFORCE))
        bench.settle()
        bench.plugin.audit()
        return {str(kind): count for kind, count in keeper.repairs.items()}

    result: dict[str, Any] = {"raised_observe": play(Mode.OBSERVE)}
    result |= {"warned": list(heard.lines), "left": keeper.leftovers()}
    result |= {"repaired": mend(), "left_repaired": keeper.leftovers()}
    result["raised"] = play(Mode.STRICT)
    mend()
    if plant in AT_ONCE:
        play(Mode.ENFORCE)
        repaired = {str(kind): count for kind, count in keeper.repairs.items()}
        result["at_once"] = {"repaired": repaired, "left": keeper.leftovers()}
    result["off"] = bench.plugin.guard.failed
    return result


def detach(bench: Bench, heard: Warnings) -> dict[str, Any]:
    """The storage is taken away, in enforce: the threads run free from here on."""
    keeper = bench.plugin.keeper
    keeper.change(dataclasses.replace(keeper.options, mode=Mode.ENFORCE))
    heard.lines.clear()
    believed = keeper.ledger.view.believed_pages()
    bench.engine.clock.release_all()
    done, _ = bench.tree.detach_storage_backend()
    bench.plugin.audit()
    left = keeper.ledger.view.believed_pages()
    return {"done": done, "believed": believed, "left": left, "warned": list(heard.lines)}


def fault_of_the_plugin(bench: Bench, heard: Warnings) -> dict[str, Any]:
    """The plugin's own books break in the middle of a request."""

    def broken(*_: Any) -> None:
        raise KeyError("planted: the ledger is broken")

    heard.lines.clear()
    ledger, guard = bench.plugin.keeper.ledger, bench.plugin.guard
    with patched(ledger, "enter", lambda _: broken):
        rids = [bench.finish(bench.fresh(10), 4) for _ in range(2)]
    finished = [bench.engine.outputs[rid].finish for rid in rids]
    told = {"finished": finished, "told": list(heard.lines), "off": guard.failed}
    guard.failed = False
    ledger.note_all(bench.plugin.keeper.now)
    return told


AT_ONCE = ("pin", "marker", "belief")


def main(version: str, only: str = "") -> None:
    heard = Warnings()
    logging.getLogger("hicache_fsm").addHandler(heard)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(version, Path(folder))
        try:
            results = {plant: judge(bench, plant, heard) for plant in ([only] if only else PLANTS)}
            results["fault of the plugin"] = fault_of_the_plugin(bench, heard)
            results["detach"] = detach(bench, heard)
        finally:
            bench.engine.close()
    print("RESULT", json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
