"""What the runtime costs: a scheduling pass, and a transition against the `transitions` library.

Times of one run are only comparable with each other, so the tables give ratios beside microseconds.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from transitions import Machine

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.runtime import AttemptKey, Completion, EventLog, HiCacheLifecycle
from hicache_fsm.spec import load_spec

WAITING = (1_000, 10_000, 100_000)
ARMED_PERCENT = (0, 1, 10, 100)
INTERVAL = 1_000
IDLE_PASSES = 900
BATCH = 2_000


def lifecycle(
    log: EventLog | None = None, *, monitor: bool = False, interval: int = INTERVAL
) -> HiCacheLifecycle:
    """A lifecycle on pools that never fill; its budget never ends."""
    return HiCacheLifecycle(
        pool_tokens=10**12,
        max_context_len=4096,
        page_size=16,
        interval=INTERVAL,
        max_attempts=10**9,
        log=log,
        monitor=monitor,
    )


def timed(action: Callable[[], object]) -> float:
    """Microseconds of processor time of one call, which other processes disturb less than the wall clock."""
    started = time.thread_time_ns()
    action()
    return (time.thread_time_ns() - started) / 1e3


def armed(waiting: int, percent: int, due: str) -> HiCacheLifecycle:
    """So many waiting, a share of them missed, of whom none, one or all are due in the next pass."""
    life = lifecycle()
    keys = [life.enqueue(f"r{number}", 96) for number in range(waiting)]
    chosen = keys[1:] if percent == 100 else keys[1 :: 100 // percent] if percent else []
    early = {"none": 0, "one": 1, "all": len(chosen)}[due]
    for part in (chosen[:early], chosen[early:]):
        for key in part:
            life.post(Completion(life.issue(key) or 0, "miss"))
        life.begin_pass()
    for _ in range(INTERVAL - 2 if early else 1):
        life.begin_pass()
    return life


def play(life: HiCacheLifecycle, offers: list[list[AttemptKey]], passes: int) -> None:
    """So many passes, with what the last one offered."""
    for _ in range(passes - 1):
        life.begin_pass()
    offers.append(life.begin_pass())


def pass_rows(waiting: Sequence[int]) -> list[tuple[str, ...]]:
    """One row per case: one pass where something is due, the mean of many where nothing is."""
    rows: list[tuple[str, ...]] = []
    base = 0.0
    for number in waiting:
        for percent in ARMED_PERCENT:
            for due in ("none", "one", "all") if percent else ("none",):
                life = armed(number, percent, due)
                gc.collect()
                gc.disable()
                offers: list[list[AttemptKey]] = []
                passes = IDLE_PASSES if due == "none" else 1
                spent = timed(partial(play, life, offers, passes)) / passes
                asked = len(offers[-1])
                gc.enable()
                base = base or spent
                per = f"{spent / asked:.2f}" if asked else "-"
                rows.append(
                    (
                        f"{number:,}",
                        f"{percent} %",
                        due,
                        f"{asked:,}",
                        f"{spent:.2f}",
                        f"{spent / base:.1f}",
                        per,
                    )
                )
    return rows


def cycles(life: HiCacheLifecycle, first: int) -> float:
    """Microseconds per prefetch transition of whole lives: issue, hit, done, admit."""
    keys = [life.enqueue(f"r{first + number}", 96) for number in range(BATCH)]

    def play() -> None:
        for key in keys:
            op = life.issue(key) or 0
            life.hit(key, op, 96, 96)
            life.loaded(key, op)
            life.admit(key)

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


class Model:
    """What `transitions` moves; its guards are methods, as the compiled machine's are functions."""

    state: str

    def yes(self) -> bool:
        """A guard that holds."""
        return True


def transitions_cycles() -> Callable[[], float]:
    """Microseconds per trigger of `transitions` on the same states and four events, one guard each."""
    spec = load_spec().machines["prefetch"]
    model = Model()
    machine = Machine(model, states=list(spec.states), initial=spec.initial, auto_transitions=False)
    for event, source, dest in (
        ("issue", "queued", "probing"),
        ("hit", "probing", "transferring"),
        ("done", "transferring", "loaded"),
        ("admit", "loaded", "scheduled"),
    ):
        machine.add_transition(event, source, dest, conditions="yes")
    triggers = [getattr(model, event) for event in ("issue", "hit", "done", "admit")]

    def play() -> None:
        for _ in range(BATCH):
            model.state = spec.initial
            for trigger in triggers:
                trigger()

    return lambda: timed(play) / (4 * BATCH)


def transition_rows(repeats: int) -> list[tuple[str, ...]]:
    """Best and median microseconds per transition of each way to take one, interleaved in one process."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [EventLog(Path(folder) / f"{number}.jsonl") for number in range(2)]
        lives = {
            "runtime": lifecycle(),
            "runtime + log": lifecycle(logs[0]),
            "runtime + monitor": lifecycle(monitor=True),
            "runtime + log + monitor": lifecycle(logs[1], monitor=True),
        }
        table = CompiledMachine(load_spec().machines["prefetch"])
        library = transitions_cycles()
        ways: dict[str, Callable[[int], float]] = {"table alone": lambda turn: table_cycles(table)}
        for name, life in lives.items():
            ways[name] = lambda turn, life=life: cycles(life, turn * BATCH)  # type: ignore[misc]
        ways["transitions"] = lambda turn: library()
        times: dict[str, list[float]] = {name: [] for name in ways}
        gc.disable()
        for turn in range(repeats):
            for name, way in ways.items():
                times[name].append(way(turn))
            gc.collect()
        gc.enable()
        for life in lives.values():
            life.close()
    best = {name: min(spent) for name, spent in times.items()}
    return [
        (
            name,
            f"{best[name]:.2f}",
            f"{statistics.median(times[name]):.2f}",
            f"{best['transitions'] / best[name]:.1f}",
        )
        for name in ways
    ]


def show(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 and 10,000 waiting only, fewer repeats")
    quick = parser.parse_args().quick
    show(
        "One scheduling pass",
        ("waiting", "armed", "due", "asked again", "us per pass", "ratio to first row", "us per asked"),
        pass_rows(WAITING[:2] if quick else WAITING),
    )
    show(
        "One checked transition of a prefetch",
        ("way", "best us", "median us", "times faster than transitions"),
        transition_rows(5 if quick else 21),
    )


if __name__ == "__main__":
    main()
