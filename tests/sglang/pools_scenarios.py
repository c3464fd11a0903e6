"""Leads a lifecycle on a real SGLang's pools through one scenario after another: what each left or got wrong.

Runs inside `.sglang/env`: ``pools_scenarios.py VERSION [PART-OF-A-NAME]``. Prints ``RESULT {scenario: [problems]}``.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pools_rig import BROKEN, CHAIN, FETCHED, HEAD, PlantedError, Rig

from hicache_fsm.executor.errors import OwnershipError, PoolExhaustedError
from hicache_fsm.runtime import AttemptKey, IllegalTransition
from hicache_fsm.sglang.pools.executor import SGLangPools
from hicache_fsm.sglang.target.engine import QUESTIONS, READS, WRITES, GatedEngine
from hicache_fsm.sglang.target.storage import Verdict
from hicache_fsm.sglang.target.world import PAGE

Step = Callable[[Rig], Any]


def journey(rig: Rig) -> None:
    """Question, hit, read, loaded, admitted: the KV rows are those that were written."""
    rig.stored()
    key = rig.queue()
    op = rig.ask(key)
    rig.same(op, 1)
    rig.same(rig.owned()["pins"], 1)
    rig.step()
    rig.same(rig.life.state(key), "transferring")
    rig.agree()
    rig.step()
    rig.same(rig.life.state(key), "loaded")
    rig.agree()
    slots = rig.pools.seat(key)
    # whatever the slots held before is gone, so that only the copy can bring it back
    fresh = slots[len(HEAD) * PAGE :]
    kv = rig.allocator.get_kvcache()
    for layers in (kv.k_buffer, kv.v_buffer):
        for layer in layers:
            layer[fresh] = -1.0
    rig.same(rig.life.admit(key), FETCHED * PAGE)
    rig.agree()
    rig.engine.acks.open = True
    rig.step()
    rig.same(rig.pools.ready(key), True)
    for seen, written in zip(rig.read(slots), rig.rows["chain"], strict=True):
        rig.same(torch.equal(seen, written), True, "the KV bytes are those that were written")
    rig.same(rig.pools.plant(key, len(CHAIN)), rig.nodes["chain"])
    rig.life.finish(key)
    rig.pools.unseat(key)
    # its tail is a node again, beyond what there was at the start
    rig.life.evict(rig.nodes["chain"])


def miss(rig: Rig) -> None:
    """Nothing is stored: a miss, no host page is ever taken."""
    key = rig.queue()
    rig.ask(key)
    rig.step()
    rig.same(rig.life.reason(key), "absent")
    rig.same(rig.owned(), rig.start)


def abort_while_reading(rig: Rig) -> None:
    """The pages come back with the last acknowledgement, and not before."""
    key = rig.stored().queue()
    rig.reading(key)
    taken = rig.owned()
    rig.life.abort(key)
    rig.life.begin_pass()
    rig.same(rig.owned()["host"], taken["host"], "host pages while a thread reads into them")
    rig.same(rig.owned()["pins"], 0)
    rig.agree()
    rig.step()
    rig.same(rig.owned(), rig.start, "after the acknowledgement")


def cut_while_reading(rig: Rig) -> None:
    """A cut keeps what has been read; the rest comes back with the acknowledgement."""
    key = rig.stored().queue()
    op = rig.reading(key)
    rig.same(rig.pools.read_tokens(op), PAGE)
    rig.life.cut(key, PAGE)
    rig.same(rig.owned()["host"], FETCHED * PAGE)
    rig.agree()
    rig.step()
    rig.same(rig.owned()["host"], PAGE)
    rig.agree()


def completed_in_two(rig: Rig) -> None:
    """Storage has one page of two, then both: a second question asks for the rest, and both go to the device."""
    rig.stored()
    # the head of the queue is about to be admitted, and never asks again
    rig.queue("s")
    key, storage = rig.queue(), rig.engine.storage
    assert storage is not None
    last = rig.pools.names(key)[-1]
    page = storage.stored.pop(last)
    rig.ask(key)
    for _ in range(12):
        for due in rig.step():
            storage.stored[last] = page
            rig.same(rig.pools.match(due)[1], PAGE, "tokens left to ask for")
            rig.ask(due)
        rig.agree()
    rig.same(rig.life.state(key), "loaded")
    rig.same(rig.owned()["host"], FETCHED * PAGE)
    slots = rig.pools.seat(key)
    rig.engine.acks.open = True
    rig.same(rig.life.admit(key), FETCHED * PAGE)
    rig.step()
    for seen, written in zip(rig.read(slots), rig.rows["chain"], strict=True):
        rig.same(torch.equal(seen, written), True, "the KV bytes are those that were written")


def aborted_copy(rig: Rig) -> None:
    """A request that leaves while its hold is being copied: slots and pages go back when it has been."""
    key = rig.stored().queue()
    rig.loaded(key)
    rig.pools.seat(key)
    rig.life.admit(key)
    taken = rig.owned()
    rig.life.finish(key)
    rig.pools.unseat(key)
    rig.step()
    rig.same(rig.owned()["device"], taken["device"], "slots while they are copied to")
    rig.same(rig.owned()["host"], taken["host"], "host pages while they are copied from")
    rig.engine.acks.open = True
    rig.step()
    rig.same(rig.owned(), rig.start)


def parked(rig: Rig) -> None:
    """A hit that finds no host page waits, and goes on when there are some."""
    key = rig.stored().queue()
    full = rig.engine.host_free // PAGE
    taken = rig.pools._take_host(full - FETCHED + 1)
    rig.ask(key)
    rig.step()
    rig.same(rig.life.state(key), "parked")
    rig.same(rig.life.unparked(key), False)
    rig.pools._free_host(taken)
    rig.same(rig.life.unparked(key), True)
    rig.step()
    rig.same(rig.life.state(key), "loaded")


def flushed_while_reading(rig: Rig) -> None:
    """After a flush the attempt asks anew, and the answer of its former question is nobody's."""
    key = rig.stored().queue()
    rig.reading(key)
    rig.life.flush()
    rig.same(rig.ask(key), 2)
    rig.agree()
    for _ in range(3):
        rig.step()
    rig.same(rig.life.state(key), "loaded")
    rig.same(rig.owned()["host"], FETCHED * PAGE)


def grown_prefix(rig: Rig) -> None:
    """Somebody else's node covers a part of the hold by the time it is admitted: that part is not copied."""
    key = rig.stored().queue()
    rig.loaded(key)
    rig.write("chain")
    slots = rig.pools.seat(key)
    rig.life.admit(key)
    rig.same(rig.pools.ready(key), True, "nothing is left to copy")
    for seen, written in zip(rig.read(slots), rig.rows["chain"], strict=True):
        rig.same(torch.equal(seen, written), True, "the rows are those that were computed last")
    rig.life.finish(key)
    rig.pools.unseat(key)
    rig.life.evict(rig.nodes["chain"])


def full_pools(rig: Rig) -> None:
    """A pool that is full says so, and nothing is taken of it or of any other."""
    key = rig.stored().queue()
    rig.loaded(key)
    before = rig.owned()
    free = int(rig.allocator.available_size()) // PAGE
    slots = rig.allocator.alloc((free - 1) * PAGE)
    rig.refuses(lambda: rig.pools.seat(key), PoolExhaustedError)
    rig.allocator.free(slots)
    rig.same(rig.owned(), before, "after a seat that was refused")
    rig.pools.seat(key)
    taken = rig.pools._take_host(rig.engine.host_free // PAGE)
    assert rig.engine.storage is not None
    rig.life.clear()
    seated = rig.owned()
    names = rig.pools.names(AttemptKey("head", 0))
    rig.refuses(lambda: rig.life.write("kv", names), PoolExhaustedError)
    rig.same(rig.owned(), seated, "after a write that was refused")
    rig.pools._free_host(taken)


def unstartable_copy(rig: Rig) -> None:
    """SGLang raises while it starts the copy: the hold stays a hold, and the next try copies it."""
    key = rig.stored().queue()
    rig.loaded(key)
    controller = rig.pools.controller
    rig.pools.seat(key)
    before = rig.owned()

    def refuse() -> None:
        raise PlantedError("start_loading")

    controller.start_loading = refuse
    rig.refuses(lambda: rig.life.admit(key), PlantedError)
    del controller.start_loading
    rig.same(rig.owned(), before)
    rig.same(len(controller.load_queue), 0)
    rig.engine.acks.open = True
    rig.life.admit(key)
    rig.agree()


def parent(rig: Rig) -> None:
    """A node with another below it is not freed in its place."""
    nodes = {rid: rig.write(rid) for rid in ("head", "chain")}
    rig.refuses(lambda: rig.life.evict(nodes["head"]), OwnershipError)
    rig.start = rig.owned()


def walk(seed: int) -> Step:
    """Requests come, are aborted, cut, admitted and finished at random, while effects raise and reads are held."""

    def scenario(rig: Rig) -> None:
        rig.stored()
        rig.engine.acks.open = True
        rng, life, pools = random.Random(seed), rig.life, rig.pools
        armable = ["ask", "take_pages", "lock_anchor", "stage_hold", "orphan_operation", "release_hold"]
        queued: list[AttemptKey] = []
        running: list[AttemptKey] = []
        told = 0

        def offer() -> None:
            for key in life.begin_pass():
                rig.ask(key)

        for number in range(600):
            if rng.random() < 0.15:
                rig.executor.armed = rng.choice(armable), rng.choice(["before", "after"])
            key = rng.choice(queued) if queued else None
            rid = rng.choice("rstuv")
            live = {one.rid for one in [*queued, *running]}
            try:
                match rng.randrange(11):
                    case 0 | 1 if rid not in live:
                        queued.append(rig.queue(rid))
                        rig.ask(queued[-1])
                    case 7 | 8 | 9 | 10:
                        pools.drain()
                        rig.engine.rest.settle()
                        feed = rng.choice([QUESTIONS, READS, READS])
                        if rig.engine.serving(feed) is not None:
                            rig.engine.tell(feed, Verdict(rng.choice([None, None, 0])))
                        elif waiting := rig.engine.waiting(feed):
                            rig.engine.serve(feed, waiting[0])
                    case 2 | 3:
                        pools.drain()
                        offer()
                    case 4 if key is not None and (life.state(key) == "exhausted" or rng.random() < 0.3):
                        life.abort(key)
                        queued.remove(key)
                    case 5 if key is not None and life.state(key) == "transferring":
                        op = life.operation(key)
                        life.cut(key, pools.read_tokens(op or 0))
                    case 6 if key is not None and life.state(key) == "loaded":
                        if key not in pools._seats:
                            pools.seat(key)
                        life.admit(key)
                        queued.remove(key)
                        running.append(key)
                        told += 1
                    case _ if running:
                        done = running.pop(0)
                        life.finish(done)
                        pools.unseat(done)
            except PlantedError:
                pass
            if rig.executor.armed is None or number % 10 == 0:
                rig.executor.armed = None
                rig.agree()
        rig.executor.armed = None
        rig.same(told > 5, True, f"{told} of many admitted, more than five")

    return scenario


def failed_write(rig: Rig) -> None:
    """Storage refuses a page: it and those behind it are not believed stored."""
    life, pools = rig.life, rig.pools
    key = life.enqueue("head", tokens=len(HEAD) * PAGE)
    life.issue(key, asks=False, why="too_short")
    pools.seat(key)
    life.admit(key)
    pools.plant(key, len(HEAD))
    names = pools.names(key)
    life.write("kv", names)
    pools.drain()
    rig.engine.rest.settle()
    (operation,) = rig.engine.waiting(WRITES)
    rig.engine.serve(WRITES, operation)
    rig.engine.tell(WRITES, Verdict())
    rig.engine.tell(WRITES, Verdict(0))
    rig.step()
    rig.same([life.beliefs.state("kv", name) for name in names], ["believed", "unknown"])
    life.finish(key)
    pools.unseat(key)
    rig.start = rig.owned()


def _asked(rig: Rig) -> Any:
    key = rig.stored().queue()
    return lambda: rig.ask(key)


def _hit(rig: Rig) -> Any:
    rig.ask(rig.stored().queue())
    rig.serve((QUESTIONS,))
    return rig.life.begin_pass


def _unanswerable(rig: Rig) -> Any:
    rig.stored()
    assert rig.engine.storage is not None
    rig.engine.storage.clear()
    rig.ask(rig.queue())
    rig.serve()
    return rig.life.begin_pass


def _read(rig: Rig) -> Any:
    rig.ask(rig.stored().queue())
    rig.step()
    rig.serve()
    return rig.life.begin_pass


def _unreadable(rig: Rig) -> Any:
    rig.ask(rig.stored().queue())
    rig.step()
    assert rig.engine.storage is not None
    rig.engine.storage.unreadable |= set(rig.engine.storage.stored)
    rig.serve()
    return rig.life.begin_pass


def _reading(rig: Rig, leave: Callable[[Rig, AttemptKey], Any]) -> Any:
    key = rig.stored().queue()
    rig.reading(key)
    return lambda: leave(rig, key)


def _orphaned(rig: Rig) -> Any:
    key = rig.stored().queue()
    rig.reading(key)
    rig.life.abort(key)
    rig.serve()
    return rig.life.begin_pass


def _held(rig: Rig, leave: Callable[[Rig, AttemptKey], Any]) -> Any:
    key = rig.stored().queue()
    rig.loaded(key)
    return lambda: leave(rig, key)


def _admit(rig: Rig, key: AttemptKey) -> Any:
    rig.engine.acks.open = True
    if key not in rig.pools._seats:
        rig.pools.seat(key)
    return rig.life.admit(key)


def _planted(rig: Rig) -> Any:
    rig.nodes["head"] = rig.write("head")
    assert rig.engine.storage is not None
    rig.engine.storage.clear()
    rig.life.clear()
    rig.start = rig.owned()
    names = rig.pools.names(AttemptKey("head", 0))
    return lambda: rig.life.write("kv", names)


def _written(rig: Rig) -> Any:
    _planted(rig)()
    rig.serve()
    return rig.life.begin_pass


def _resident(rig: Rig) -> Any:
    rig.nodes["head"] = rig.write("head")

    def evict() -> None:
        rig.life.evict(rig.nodes["head"])
        rig.start = rig.owned()

    return evict


EFFECTS: dict[str, Callable[[Rig], Callable[[], Any]]] = {
    "ask": _asked,
    "lock_anchor": _asked,
    "take_pages": _hit,
    "end_operation": _unanswerable,
    "unlock_anchor": _unanswerable,
    "stage_hold": _read,
    "free_pages": _unreadable,
    "orphan_operation": lambda rig: _reading(rig, lambda rig, key: rig.life.abort(key)),
    "cut_operation": lambda rig: _reading(rig, lambda rig, key: rig.life.cut(key, PAGE)),
    "free_orphan_pages": _orphaned,
    "consume_hold": lambda rig: _held(rig, _admit),
    "release_hold": lambda rig: _held(rig, lambda rig, key: rig.life.abort(key)),
    "launch_write": _planted,
    "settle_write": _written,
    "free_both": _resident,
}
"""Each effect, and how to come to the event that has it."""
ACQUIRING = ("ask", "take_pages", "lock_anchor", "launch_write")


def raised(effect: str, when: str, *, again: bool) -> Step:
    """The effect raises once; then the event comes again, or everything is given up."""

    def scenario(rig: Rig) -> None:
        act = EFFECTS[effect](rig)
        before, states = rig.owned(), dict(rig.life.states())
        rig.executor.armed = effect, when
        try:
            act()
            rig.problems.append(f"{effect} was not reached")
        except PlantedError:
            pass
        rig.same(dict(rig.life.states()), states, "states after the fault")
        if effect in ACQUIRING or (when == "before" and effect != "consume_hold"):
            rig.serve()
            rig.same(rig.owned(), before, "owned after the fault")
        if again:
            act()
            rig.agree()

    return scenario


SCENARIOS: dict[str, Step] = (
    {
        "journey": journey,
        "miss": miss,
        "abort while reading": abort_while_reading,
        "cut while reading": cut_while_reading,
        "completed in two": completed_in_two,
        "leave while copying": aborted_copy,
        "failed write": failed_write,
        "parked": parked,
        "flush while reading": flushed_while_reading,
        "grown prefix": grown_prefix,
        "full pools": full_pools,
        "copy that cannot start": unstartable_copy,
        "parent": parent,
    }
    | {f"walk {seed}": walk(seed) for seed in range(4)}
    | {
        f"{effect} raises {when}, {'again' if again else 'given up'}": raised(effect, when, again=again)
        for effect in EFFECTS
        for when in ("before", "after")
        for again in (True, False)
        # a node that is half freed has to be freed (#36637)
        if again or effect != "free_both"
    }
)


def played(engine: GatedEngine, scenario: Step, pools: type[SGLangPools] = SGLangPools) -> list[str]:
    """What a scenario left or got wrong, one line each."""
    try:
        rig = Rig(engine, pools)
        scenario(rig)
        return rig.end()
    except (RuntimeError, AssertionError, IllegalTransition, LookupError, TypeError, ValueError):
        return [traceback.format_exc()]


def main(argv: list[str]) -> None:
    """One engine, all scenarios that have ``argv[1]`` in their name."""
    logging.disable(logging.ERROR)
    version, wanted = argv[0], argv[1] if len(argv) > 1 else ""
    results: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        engine = GatedEngine(version, "buffer_only", Path(folder))
        # as SGLang's own event loop; its pools and threads are made outside
        with torch.inference_mode():
            for name, scenario in SCENARIOS.items():
                if wanted in name:
                    results[name] = played(engine, scenario)
            for name, pools in BROKEN.items():
                if wanted in name:
                    results[f"{pools.__name__}: {name}"] = played(engine, SCENARIOS[name], pools)
        print("RESULT " + json.dumps(results), flush=True)
    # the controller's threads may be held inside storage
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
