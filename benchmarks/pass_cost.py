"""What the runtime costs: a scheduling pass against SGLang's own, and a transition against two libraries.

Times of one run are only comparable with each other, so the tables give ratios beside microseconds.
"""

import argparse
import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Optional

import statemachine
from transitions import Machine

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.runtime import Completion, EventLog, HiCacheLifecycle
from hicache_fsm.sglang.excerpt import excerpt
from hicache_fsm.sglang.install import DEFAULT_ROOT
from hicache_fsm.sglang.retries import StoragePrefetchRetries
from hicache_fsm.spec import load_spec

WAITING = (1_000, 10_000, 100_000)
ARMED_PERCENT = (0, 1, 10, 100)
DUE = ("none", "new", "one", "all")
INTERVAL = 1_000
BUDGET = 10**9
IDLE_PASSES = 400
BATCH = 2_000
SWEEP = "Scheduler._retry_missed_storage_prefetches"
POP = "UnifiedRadixCache.pop_storage_prefetch_miss"


def timed(action: Callable[[], object]) -> float:
    """Microseconds of processor time of one call, which other processes disturb less than the wall clock."""
    started = time.thread_time_ns()
    action()
    return (time.thread_time_ns() - started) / 1e3


def lifecycle(log: EventLog | None = None, *, monitor: bool = False) -> HiCacheLifecycle:
    """A lifecycle on pools that never fill; its budget never ends."""
    return HiCacheLifecycle(
        pool_tokens=10**12,
        max_context_len=4096,
        page_size=16,
        interval=INTERVAL,
        max_attempts=BUDGET,
        log=log,
        monitor=monitor,
    )


@dataclass(slots=True, eq=False)
class Req:
    """What SGLang's request has of retries, and no more: faster to read than the real one."""

    rid: str
    storage_prefetch_retry_attempts: int = 0
    storage_prefetch_retry_pending: bool = False
    storage_prefetch_retry_wait_polls: int = 0


Pass = Callable[[], object]


def runtime_pass(waiting: int, chosen: range, due: str) -> Pass:
    """The runtime, so many of whose attempts missed; a pass of it."""
    life = lifecycle()
    keys = [life.enqueue(f"r{number}", 96) for number in range(waiting)]
    early = {"one": 1, "all": len(chosen)}.get(due, 0)
    for part in (chosen[:early], chosen[early:]):
        for number in part:
            life.post(Completion(life.issue(keys[number]) or 0, "miss"))
        if due != "new":
            life.begin_pass()
    if due == "new":
        life._answers.drain(None)  # taking in the answers is no part of the sweep
    for _ in range(INTERVAL - 2 if early else 0):
        life.begin_pass()
    return life.begin_pass


def retries_pass(retries: Any, waiting: int, chosen: range, due: str) -> Pass:
    """An object with the surface of 0.5.23's retries, in the same position; its clock is set forward."""
    queue = [Req(f"r{number}") for number in range(waiting)]
    early = {"one": 1, "all": len(chosen)}.get(due, 0)
    for part in (chosen[:early], chosen[early:]):
        for number in part:
            retries.poll_miss(f"r{number}")
        if due != "new":
            retries.pop_ready(queue, INTERVAL, BUDGET)
    if early:
        retries._step += INTERVAL - 2
    return lambda: retries.pop_ready(queue, INTERVAL, BUDGET)


def seed_pass(
    functions: dict[str, Any], memory: SimpleNamespace, waiting: int, chosen: range, due: str
) -> Pass:
    """The sweep of 0.5.19's scheduler, in the same position."""
    queue = [Req(f"r{number}") for number in range(waiting)]
    markers = {f"r{number}" for number in chosen}
    tree = SimpleNamespace(_storage_prefetch_missed_rids=markers if due == "new" else set())
    tree.pop_storage_prefetch_miss = lambda rid: functions[POP](tree, rid)
    for place, number in enumerate(chosen if due != "new" else ()):
        queue[number].storage_prefetch_retry_pending = True
        is_due = due == "all" or (due == "one" and not place)
        queue[number].storage_prefetch_retry_wait_polls = INTERVAL if is_due else 0
    memory.hicache_storage_prefetch_retry_poll_interval = INTERVAL
    memory.hicache_storage_prefetch_retry_max_attempts = BUDGET
    scheduler = SimpleNamespace(waiting_queue=queue, tree_cache=tree, _prefetch_kvcache=lambda req: None)
    return lambda: functions[SWEEP](scheduler)


def contestants(root: Path = DEFAULT_ROOT) -> dict[str, Callable[[int, range, str], Pass]]:
    """Who is measured, and how to bring each into a position; SGLang's own where its wheels are laid out."""
    found: dict[str, Callable[[int, range, str], Pass]] = {
        "runtime": runtime_pass,
        "drop-in": lambda *position: retries_pass(StoragePrefetchRetries(), *position),
    }
    newest = root / "0.5.23" / "sglang" / "srt" / "mem_cache" / "storage_prefetch.py"
    if newest.exists():
        names = ["_StoragePrefetchRetry", "StoragePrefetchRetries"]
        original = excerpt(newest, names, dataclass=dataclass, Optional=Optional)[names[1]]
        found["0.5.23"] = lambda *position: retries_pass(original(), *position)
    seed = root / "0.5.19" / "sglang" / "srt"
    if seed.exists():
        memory = SimpleNamespace()
        quiet = SimpleNamespace(debug=lambda *_: None)
        given = {"get_memory": lambda: memory, "logger": quiet}
        functions = excerpt(seed / "managers" / "scheduler.py", [SWEEP], **given)
        functions |= excerpt(seed / "mem_cache" / "unified_radix_cache.py", [POP])
        found["0.5.19"] = lambda *position: seed_pass(functions, memory, *position)
    return found


def cases(waiting: Sequence[int]) -> Iterator[tuple[int, int, str]]:
    """Waiting requests, the share of them that is armed, and which of these are due."""
    for number in waiting:
        for percent in ARMED_PERCENT:
            for due in DUE if percent else DUE[:1]:
                yield number, percent, due


def pass_rows(waiting: Sequence[int], repeats: int) -> tuple[list[str], list[list[str]]]:
    """One row per case, the best of some repeats: one pass where something is to do, else the mean of many."""
    who = contestants()
    rows = []
    for number, percent, due in cases(waiting):
        chosen = range(1, number, 100 // percent) if percent else range(0)
        best = dict.fromkeys(who, float("inf"))
        for _ in range(repeats):
            for name, prepare in who.items():
                a_pass = prepare(number, chosen, due)
                passes = 1 if due != "none" else IDLE_PASSES if name in ("runtime", "drop-in") else 5
                gc.collect()
                gc.disable()
                spent = timed(lambda: [a_pass() for _ in range(passes)]) / passes  # noqa: B023 - called at once
                gc.enable()
                best[name] = min(best[name], spent)
        ratio = best["runtime"] / best["0.5.23"] if "0.5.23" in best else float("nan")
        rows.append(
            [f"{number:,}", f"{percent} %", due, *(f"{best[name]:,.2f}" for name in who), f"{ratio:.3g}"]
        )
    return [f"{name} us" for name in who], rows


def cycles(life: HiCacheLifecycle, first: int) -> float:
    """Microseconds per prefetch transition of whole lives: issue, hit, done, admit; a pass for each 50."""
    keys = [life.enqueue(f"r{first + number}", 96) for number in range(BATCH)]

    def play() -> None:
        for number, key in enumerate(keys):
            op = life.issue(key) or 0
            life.hit(key, op, 96, 96)
            life.loaded(key, op)
            life.admit(key)
            if number % 50 == 0:
                life.begin_pass()

    spent = timed(play) / (4 * BATCH)
    for key in keys:
        life.finish(key)
    return spent


def table_cycles(table: CompiledMachine) -> float:
    """Microseconds per decision of the bare table on the same four events."""
    ids = table.event_ids
    asks, room, nothing = table.mask(["asks"]), table.mask(["room"]), 0
    events = [(ids["issue"], asks), (ids["hit"], room), (ids["done"], nothing), (ids["admit"], nothing)]

    def play() -> None:
        for _ in range(BATCH):
            state = table.initial
            for event, truth in events:
                row = table.decide(state, event, truth)
                assert row is not None
                state = row.dest

    return timed(play) / (4 * BATCH)


EVENTS = ("issue", "hit", "done", "admit")


class Model:
    """What `transitions` moves; its guards are methods, as the compiled machine's are functions."""

    state: str

    def yes(self) -> bool:
        """A guard that holds."""
        return True


def transitions_machine() -> Machine:
    """The states of the prefetch machine and the same four events, one guard each and no effects."""
    spec = load_spec().machines["prefetch"]
    machine = Machine(None, states=list(spec.states), initial=spec.initial, auto_transitions=False)
    path = ("queued", "probing", "transferring", "loaded", "scheduled")
    for event, source, dest in zip(EVENTS, path, path[1:], strict=False):
        machine.add_transition(event, source, dest, conditions="yes")
    return machine


def transitions_cycles(after: Callable[[], None] | None = None) -> Callable[[], float]:
    """Microseconds per trigger of `transitions`; `after` is called after each, as a logger would be."""
    machine = transitions_machine()
    if after is not None:
        machine.after_state_change = [after]
    model = Model()
    machine.add_model(model)
    triggers = [getattr(model, event) for event in EVENTS]

    def play() -> None:
        for _ in range(BATCH):
            model.state = "queued"
            for trigger in triggers:
                trigger()

    return lambda: timed(play) / (4 * BATCH)


class Python(statemachine.StateMachine):
    """The same four events in python-statemachine, with one back to the start."""

    queued = statemachine.State(initial=True)
    probing, transferring, loaded, scheduled = (statemachine.State() for _ in range(4))
    issue = queued.to(probing, cond="yes")
    hit = probing.to(transferring, cond="yes")
    done = transferring.to(loaded, cond="yes")
    admit = loaded.to(scheduled, cond="yes")
    again = scheduled.to(queued, cond="yes")

    def yes(self) -> bool:
        """A guard that holds."""
        return True


def python_cycles() -> Callable[[], float]:
    """Microseconds per event of python-statemachine, the way back included."""
    machine = Python()
    events = [getattr(machine, event) for event in (*EVENTS, "again")]

    def play() -> None:
        for _ in range(BATCH // 10):
            for event in events:
                event()

    return lambda: timed(play) / (len(events) * (BATCH // 10))


def runtime_bytes(number: int) -> tuple[float, float]:
    """Bytes of a waiting attempt, and what each of two transitions adds to it."""
    life = lifecycle()

    def begin() -> list[Any]:
        return [life.enqueue(f"r{one}", 96) for one in range(number)]

    def move(keys: list[Any]) -> None:
        for key in keys:
            life.hit(key, life.issue(key) or 0, 96, 96)

    return kept(begin, move, number)


def library_bytes(make: Callable[[], Any], number: int) -> tuple[float, float]:
    """The same for an instance of a library's machine."""

    def begin() -> list[Any]:
        return [make() for _ in range(number)]

    def move(models: list[Any]) -> None:
        for model in models:
            model.issue()
            model.hit()

    return kept(begin, move, number)


def kept(
    begin: Callable[[], list[Any]], move: Callable[[list[Any]], None], number: int
) -> tuple[float, float]:
    """Bytes kept per instance after `begin`, and per transition after `move`, which takes two each."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    instances = begin()
    waiting = tracemalloc.get_traced_memory()[0]
    move(instances)
    gc.collect()
    moved = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (waiting - before) / number, (moved - waiting) / (2 * number)


def transition_rows(repeats: int) -> list[list[str]]:
    """Best and median microseconds per transition of each way to take one, interleaved in one process."""
    machine, number = transitions_machine(), 500

    def model() -> Model:
        machine.add_model(one := Model())
        return one

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.jsonl" for name in ("buffered", "unbuffered", "both", "library")]
        lives = {
            "runtime": lifecycle(),
            "runtime + log": lifecycle(EventLog(paths[0])),
            "runtime + log, a write a line": lifecycle(EventLog(paths[1], buffered=False)),
            "runtime + monitor": lifecycle(monitor=True),
            "runtime + log + monitor": lifecycle(EventLog(paths[2]), monitor=True),
        }
        table = CompiledMachine(load_spec().machines["prefetch"])
        plain, python = transitions_cycles(), python_cycles()
        file = paths[3].open("w")
        line = '{"seq":%d,"pass":%d,"machine":"prefetch","event":"%s","rid":"%s","attempt":0}\n'

        def tell() -> None:
            file.write(line % (1, 2, "issue", "r1"))

        logged = transitions_cycles(tell)
        ways: dict[str, Callable[[int], float]] = {"table alone": lambda turn: table_cycles(table)}
        for name, life in lives.items():
            ways[name] = lambda turn, life=life: cycles(life, turn * BATCH)  # type: ignore[misc]
        ways["transitions"] = lambda turn: plain()
        ways["transitions + a line"] = lambda turn: logged()
        ways["python-statemachine"] = lambda turn: python()
        times: dict[str, list[float]] = {name: [] for name in ways}
        gc.disable()
        for turn in range(repeats):
            for name, way in ways.items():
                times[name].append(way(turn))
            gc.collect()
        gc.enable()
        for life in lives.values():
            life.close()
        file.close()
        # A life is enqueued, takes four transitions and finishes: six lines.
        a_line = paths[0].stat().st_size / (6 * BATCH * repeats)
    best = {name: min(spent) for name, spent in times.items()}
    memory = {
        "runtime": runtime_bytes(number),
        "transitions": library_bytes(model, number),
        "python-statemachine": library_bytes(Python, number),
    }
    rows = []
    for name in ways:
        held = [f"{part:,.0f}" for part in memory[name]] if name in memory else ["", ""]
        ratios = [f"{best[other] / best[name]:.1f}" for other in ("transitions", "python-statemachine")]
        log = f"{a_line:,.0f}" if name.startswith("runtime + log") else ""
        rows.append([name, f"{best[name]:.2f}", f"{statistics.median(times[name]):.2f}", *ratios, *held, log])
    return rows


def show(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(names)} |\n|{'--:|' * len(names)}", flush=True)
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 and 10,000 waiting only, fewer repeats")
    quick = parser.parse_args().quick
    names, rows = pass_rows(WAITING[:2] if quick else WAITING, 2 if quick else 3)
    show("One scheduling pass", ("waiting", "armed", "due", *names, "runtime / 0.5.23"), rows)
    show(
        "One checked transition of a prefetch",
        (
            "way",
            "best us",
            "median us",
            "transitions / it",
            "python-statemachine / it",
            "bytes an instance",
            "bytes more a transition",
            "log bytes a line",
        ),
        transition_rows(5 if quick else 21),
    )


if __name__ == "__main__":
    main()
