"""Runs inside ``.sglang/env``: faults put into one rank, and what rank 0 does, for ``test_ranks_real.py``."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from typing import Any

from hicache_fsm.sglang.ranked_run import Script, main
from hicache_fsm.sglang.view import EngineView, operation_key, rid_of


def slow(engine: Any) -> None:
    """The rank comes late to every pass."""
    begin = engine.scheduler.get_next_batch_to_run

    def slowed(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.003)
        return begin(*args, **kwargs)

    engine.scheduler.get_next_batch_to_run = slowed


def clock_paced(engine: Any) -> None:
    """The rank paces its retries by its clock: after 60 ms, instead of a number of passes."""
    retries = engine.scheduler.tree_cache.storage_prefetch_retries
    pop_ready, began = retries.pop_ready, {}

    def paced(queue: Any, interval: int, attempts: int) -> Any:
        now = time.monotonic()
        for rid, retry in retries._pending.items():
            if not retry.immediate:
                due = now > began.setdefault(rid, now) + 0.06
                retry.due_step = 0 if due else sys.maxsize
        return pop_ready(queue, interval, attempts)

    retries.pop_ready = paced


def late_retry(engine: Any) -> None:
    """The rank waits one pass longer before it asks again."""
    retries = engine.scheduler.tree_cache.storage_prefetch_retries
    pop_ready = retries.pop_ready
    retries.pop_ready = lambda queue, interval, attempts: pop_ready(queue, interval + 1, attempts)


def stops_polling(engine: Any) -> None:
    """The rank's scan of the queue stops early from pass 20 on, as where it goes by what is free on this rank."""
    tree = engine.scheduler.tree_cache
    check = tree.check_prefetch_progress
    tree.check_prefetch_progress = lambda key: engine.passes < 20 and check(key)


def dies(engine: Any) -> None:
    """The rank's process ends in pass 40."""
    begin = engine.scheduler.get_next_batch_to_run

    def ended(*args: Any, **kwargs: Any) -> Any:
        if engine.passes == 40:
            os._exit(9)
        return begin(*args, **kwargs)

    engine.scheduler.get_next_batch_to_run = ended


def notes_clears(engine: Any) -> None:
    """Note of each clear of the storage what came of it on this rank."""
    tree = engine.scheduler.tree_cache
    view, clear = EngineView(engine.scheduler), tree.clear_storage_backend
    clears = engine.noted["clears"] = []

    def noted() -> bool:
        before = view.believed_pages()
        result = clear()
        clears.append([result, before, view.believed_pages()])
        return bool(result)

    tree.clear_storage_backend = noted


def clear_raises(engine: Any) -> None:
    """The rank's storage cannot be reached when it is to be cleared."""
    notes_clears(engine)

    def clear() -> None:
        raise OSError("planted: storage cannot be reached")

    engine.scheduler.tree_cache.cache_controller.storage_backend.clear = clear


def _prompt(seed: int, tokens: int) -> list[int]:
    return [3 + (7 * seed + 5 * place + place * place) % 500 for place in range(tokens)]


def _play(engine: Any, names: str, seeds: range, tokens: int = 96) -> None:
    for seed in seeds:
        engine.submit(f"{names}{seed}", _prompt(seed, tokens), max_new_tokens=4)
        _rest(engine)


def _rest(engine: Any) -> str:
    """Go on until nothing is left to do, for 200 passes at most."""
    for _ in range(200):
        engine.step()
        if engine.idle:
            return "at rest"
        time.sleep(0.002)
    return "never at rest"


def clear_under_load(engine: Any) -> str:
    """Store something, clear the storage, and play on."""
    _play(engine, "a", range(3))
    engine.control("ClearHiCacheReqInput")
    _play(engine, "b", range(3, 15))
    engine.submit("c0", _prompt(0, 96), max_new_tokens=4)
    return _rest(engine)


def asks_late(engine: Any) -> None:
    """The rank's question thread is slow to take up the question of ``again``."""
    controller = engine.scheduler.tree_cache.cache_controller
    queue = controller.prefetch_queue
    get = queue.get

    def late(*args: Any, **kwargs: Any) -> Any:
        asked = get(*args, **kwargs)
        if asked is not None and rid_of(operation_key(asked)) == "again":
            time.sleep(0.3)
        return asked

    queue.get = late


def cuts_late(engine: Any) -> None:
    """The rank's scheduler is slow to come to ``again`` in its scan of the queue."""
    tree = engine.scheduler.tree_cache
    check = tree.check_prefetch_progress

    def late(key: Any) -> bool:
        if rid_of(key) == "again" and key in tree.ongoing_prefetch:
            time.sleep(0.15)
        return bool(check(key))

    tree.check_prefetch_progress = late


def ask_again(engine: Any) -> str:
    """Under best effort: a prompt whose pages are stored and no longer on the device comes again, twice."""
    _play(engine, "a", range(1))
    _play(engine, "b", range(1, 13))
    for rid in ("again", "more"):
        engine.submit(rid, _prompt(0, 96), max_new_tokens=4)
        rest = _rest(engine)
        _play(engine, f"after-{rid}-", range(13, 25))
    return rest


def cannot_attach(engine: Any) -> None:
    """The rank's host cannot reach the storage that is to be attached; where each thread is then is printed."""
    from sglang.srt.mem_cache.storage import StorageBackendFactory

    def create_backend(*_: Any, **__: Any) -> None:
        raise OSError("planted: storage cannot be reached")

    StorageBackendFactory.create_backend = create_backend
    tells_where(engine)


def tells_where(engine: Any) -> None:
    """Print where each thread is, 8 seconds after an attach has begun."""
    tree = engine.scheduler.tree_cache
    attach = tree.attach_storage_backend

    def told(*args: Any, **kwargs: Any) -> Any:
        faulthandler.dump_traceback_later(8, file=sys.stdout)
        result = attach(*args, **kwargs)
        print(f"attached: {result}", flush=True)
        return result

    tree.attach_storage_backend = told


def attach_again(engine: Any) -> str:
    """Detach the storage and attach it again, in an engine at rest; then play on."""
    _play(engine, "a", range(2))
    engine.control("DetachHiCacheStorageReqInput")
    engine.step()
    engine.control("AttachHiCacheStorageReqInput", hicache_storage_backend="file")
    _play(engine, "b", range(2, 4))
    return _rest(engine)


PLANTS = {
    one.__name__: one
    for one in (
        slow,
        clock_paced,
        late_retry,
        dies,
        notes_clears,
        clear_raises,
        asks_late,
        cuts_late,
        cannot_attach,
        tells_where,
    )
}
DRIVES = {one.__name__: one for one in (clear_under_load, ask_again, attach_again)}

if __name__ == "__main__":
    sys.exit(main(script=Script(PLANTS, DRIVES)))
