"""What one checked transition costs: bare, in a machine of one's own, in the runtime, and in two libraries."""

import gc
import statistics
import tempfile
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import statemachine
from measure import lifecycle, show, timed
from transitions import EventData
from transitions import Machine as Engine

from hicache_fsm.machine import CompiledMachine, Tracer
from hicache_fsm.runtime import EventLog, FlightRecorder, HiCacheLifecycle
from hicache_fsm.spec import Literal, Machine, load_spec

BATCH = 2_000
RING = 4_096
EVENTS = ("issue", "hit", "done", "admit")
PATH = ("queued", "probing", "transferring", "loaded", "scheduled")
NAMES = (
    "way",
    "best us",
    "median us",
    "transitions / it",
    "python-statemachine / it",
    "bytes an instance",
    "bytes more a transition",
    "log bytes a line",
)

Way = Callable[[int], float]


def four_rows(machine: Machine) -> Machine:
    """The machine's states with the four events of a request that hits, one guard each and no effects."""
    guard = (Literal("asks", True),)
    rows = (
        replace(next(machine.rows(source, event)), dest=dest, guard=guard, effects=())
        for event, source, dest in zip(EVENTS, PATH, PATH[1:], strict=False)
    )
    return replace(machine, transitions=tuple(rows))


class Thing:
    """What a machine moves; the guard is a method, as `transitions` wants it."""

    state: str

    def yes(self, event: EventData | None = None) -> bool:
        """A guard that holds."""
        return True


class Subject:
    """What a `Tracer` moves, which it needs nothing but a state of."""

    __slots__ = ("state",)
    state: str


def played(triggers: list[Callable[[], object]], thing: Thing) -> float:
    """Microseconds per transition of lives that take these four."""

    def play() -> None:
        for _ in range(BATCH):
            thing.state = "queued"
            for trigger in triggers:
                trigger()

    return timed(play) / (4 * BATCH)


def table_cycles(table: CompiledMachine) -> float:
    """Microseconds per decision of the bare table on the four events."""
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


def tracer_way(machine: Machine) -> Way:
    """A `Tracer`: guard, count and ring entry."""
    tracer: Tracer[Subject] = Tracer(
        machine, dict.fromkeys(machine.guards, lambda thing, facts: True), entries=RING
    )
    triggers = [tracer.trigger(event) for event in EVENTS]

    def way(turn: int) -> float:
        thing = Subject()

        def play() -> None:
            for _ in range(BATCH):
                thing.state = "queued"
                for trigger in triggers:
                    trigger(thing)

        return timed(play) / (4 * BATCH)

    return way


def library_machine(after: Callable[[EventData], None] | None = None) -> Engine:
    """The same four rows in `transitions`; `after` is called after each, as a logger would be."""
    machine = Engine(
        None,
        states=list(load_spec().machines["prefetch"].states),
        initial="queued",
        auto_transitions=False,
        send_event=after is not None,
    )
    for event, source, dest in zip(EVENTS, PATH, PATH[1:], strict=False):
        machine.add_transition(event, source, dest, conditions="yes")
    if after is not None:
        machine.after_state_change = [after]
    return machine


def library_way(after: Callable[[EventData], None] | None = None) -> Way:
    """`transitions`, with or without something after each transition."""
    library_machine(after).add_model(thing := Thing())
    triggers = [getattr(thing, event) for event in EVENTS]
    return lambda turn: played(triggers, thing)


def counted() -> Callable[[EventData], None]:
    """What a `Tracer` does beside the transition: counts its row, and remembers it with pass and subject."""
    counts: Counter[Any] = Counter()
    ring: deque[tuple[int, Any, Any]] = deque(maxlen=RING)

    def after(event: EventData) -> None:
        counts[event.transition] += 1
        ring.append((0, event.model, event.transition))

    return after


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


def python_way() -> Way:
    """python-statemachine, the way back included."""
    machine = Python()
    events = [getattr(machine, event) for event in (*EVENTS, "again")]

    def play() -> None:
        for _ in range(BATCH // 10):
            for event in events:
                event()

    return lambda turn: timed(play) / (len(events) * (BATCH // 10))


def cycles(life: HiCacheLifecycle, turn: int) -> float:
    """Microseconds per transition of whole lives: issue, hit, done, admit; a pass for each 50."""
    keys = [life.enqueue(f"r{turn * BATCH + number}", 96) for number in range(BATCH)]

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


def runtime_bytes(number: int, recorder: FlightRecorder | None = None) -> tuple[float, float]:
    """Bytes of a waiting attempt, and what each of two transitions adds to it."""
    life = lifecycle(recorder)

    def move(keys: list[Any]) -> None:
        for key in keys:
            life.hit(key, life.issue(key) or 0, 96, 96)

    return kept(lambda: [life.enqueue(f"r{one}", 96) for one in range(number)], move, number)


def tracer_bytes(machine: Machine, number: int) -> tuple[float, float]:
    """The same for a subject of a `Tracer` whose ring has room for all of them."""
    tracer: Tracer[Subject] = Tracer(machine, dict.fromkeys(machine.guards, True), entries=2 * number)
    issue, hit = tracer.trigger("issue"), tracer.trigger("hit")

    def begin() -> list[Subject]:
        things = [Subject() for _ in range(number)]
        for thing in things:
            thing.state = "queued"
        return things

    def move(things: list[Subject]) -> None:
        for thing in things:
            issue(thing)
            hit(thing)

    return kept(begin, move, number)


def library_bytes(make: Callable[[], Any], number: int) -> tuple[float, float]:
    """The same for an instance of a library's machine."""

    def move(models: list[Any]) -> None:
        for model in models:
            model.issue()
            model.hit()

    return kept(lambda: [make() for _ in range(number)], move, number)


def transition_rows(repeats: int) -> list[list[str]]:
    """Best and median microseconds per transition of each way to take one, interleaved in one process."""
    prefetch = load_spec().machines["prefetch"]
    four, table, number = four_rows(prefetch), CompiledMachine(prefetch), 500
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{name}.jsonl" for name in ("buffered", "unbuffered", "both", "library")]
        lives = {
            "runtime": lifecycle(),
            "runtime + flight recorder": lifecycle(FlightRecorder()),
            "runtime + log": lifecycle(EventLog(paths[0])),
            "runtime + log, a write a line": lifecycle(EventLog(paths[1], buffered=False)),
            "runtime + monitor": lifecycle(monitor=True),
            "runtime + log + monitor": lifecycle(EventLog(paths[2]), monitor=True),
        }
        file = paths[3].open("w")
        line = '{"seq":%d,"pass":%d,"machine":"prefetch","event":"%s","rid":"%s","attempt":0}\n'
        ways: dict[str, Way] = {
            "table alone": lambda turn: table_cycles(table),
            "traced machine": tracer_way(four),
            "traced machine, all of prefetch": tracer_way(prefetch),
        }
        ways |= {name: partial(cycles, life) for name, life in lives.items()}
        ways |= {
            "transitions": library_way(),
            "transitions + count and ring": library_way(counted()),
            "transitions + a line": library_way(lambda event: file.write(line % (1, 2, "issue", "r1"))),
            "python-statemachine": python_way(),
        }
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
    library = library_machine()

    def model() -> Thing:
        library.add_model(one := Thing())
        return one

    memory = {
        "traced machine": tracer_bytes(four, number),
        "runtime": runtime_bytes(number),
        "runtime + flight recorder": runtime_bytes(number, FlightRecorder()),
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


if __name__ == "__main__":
    show("One checked transition of a prefetch", NAMES, transition_rows(21))
