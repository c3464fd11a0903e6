"""The lifecycle on real pools: pages move between the tiers, and go back only when their I/O has ended."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from executor_support import HYBRID, PAGE, SIZES, World, rows, world

from hicache_fsm.executor.errors import (
    NotReadError,
    OwnershipError,
    PoolExhaustedError,
    StillUnderIoError,
    UseAfterFreeError,
)
from hicache_fsm.executor.rig import UnsureStore
from hicache_fsm.executor.stores import FileStore, MemoryStore, Store
from hicache_fsm.runtime import Anchor, AttemptKey

NAMES = ("p0", "p1", "p2")


def fetched(made: World, rid: str, *names: str) -> AttemptKey:
    """A request that has asked for its pages and got them as a hold."""
    key = made.enqueue(rid, *names)
    made.life.issue(key)
    made.step()
    made.step()
    return key


@pytest.mark.parametrize("sizes", [SIZES, HYBRID, replace(SIZES, layout="swa", swa_tokens=64)])
@pytest.mark.parametrize("kind", ["memory", "files"])
def test_what_was_written_comes_back_after_its_node_was_evicted(
    kind: str, sizes: object, tmp_path: Path
) -> None:
    store: Store = MemoryStore() if kind == "memory" else FileStore(tmp_path)
    with world(sizes, store) as made:
        kept = rows(3)
        made.plant("node", kept, *NAMES)
        made.write(*NAMES)
        made.life.evict("node")
        assert made.pools.empty
        key = fetched(made, "r", *NAMES)
        assert made.admit(key) == 3 * PAGE
        span = made.pools.seated(key)
        for part, block in zip(made.pools.parts, span.blocks, strict=True):
            assert torch.equal(made.pools.device.load(part, block), kept)
        made.finish(key)
        assert made.pools.empty
        assert made.life.idle


def test_the_dtype_of_the_device_is_kept_in_every_tier() -> None:
    with world(dtype=torch.bfloat16) as made:
        kept = rows(1).to(torch.bfloat16)
        made.plant("node", kept, "p0")
        made.write("p0")
        key = fetched(made, "r", "p0")
        made.admit(key)
        assert torch.equal(made.pools.device.load("kv", made.pools.seated(key).full), kept)
        made.finish(key)
        made.life.evict("node")


def test_answers_are_found_by_other_threads_than_the_schedulers() -> None:
    seen: set[str] = set()

    class Watched(MemoryStore):
        def exists(self, pool: str, name: str) -> bool:
            seen.add(threading.current_thread().name)
            return super().exists(pool, name)

    with world(store=Watched()) as made:
        key = made.enqueue("r", "p0")
        made.life.issue(key)
        made.step()
        assert made.life.reason(key) in ("absent", "")
        assert all(name.startswith("hicache-storage") for name in seen)
        assert seen
        made.life.abort(key)


def test_pages_of_an_aborted_read_stay_until_the_thread_is_done_with_them_31668() -> None:
    store = UnsureStore()
    with world(store=store) as made:
        for name in NAMES:
            store.write("kv", name, bytes(PAGE * SIZES.width * 4))
        store.reads = 1
        key = made.enqueue("r", *NAMES)
        op = made.life.issue(key)
        made.step()
        store.held.wait()
        made.life.abort(key)
        made.pools.drain()
        made.life.begin_pass()
        assert made.life.orphans == [op]
        assert made.pools.host.free_pages == SIZES.host_pages - 3
        store.go.set()
        made.step()
        assert made.life.orphans == []
        assert made.pools.host.free_pages == SIZES.host_pages


def test_a_cut_keeps_what_was_read_and_the_rest_waits_for_the_thread() -> None:
    store = UnsureStore()
    with world(store=store) as made:
        kept = rows(3)
        made.plant("node", kept, *NAMES)
        made.write(*NAMES)
        store.reads = 2
        key = made.enqueue("r", *NAMES)
        op = made.life.issue(key)
        made.step()
        store.held.wait()
        with pytest.raises(StillUnderIoError):
            made.life.cut(key, 3 * PAGE)
        assert made.life.state(key) == "transferring"
        made.life.cut(key, made.pools.read_tokens(op))
        store.go.set()
        made.step()
        assert made.pools.host.free_pages == SIZES.host_pages - 2
        assert made.admit(key) == 2 * PAGE
        block = made.pools.seated(key).full
        assert torch.equal(made.pools.device.load("kv", block)[: 2 * PAGE], kept[: 2 * PAGE])
        made.finish(key)
        made.life.evict("node")


def test_a_read_whose_answer_is_on_its_way_may_still_be_cut() -> None:
    with world() as made:
        made.plant("node", rows(3), *NAMES)
        made.write(*NAMES)
        key = made.enqueue("r", *NAMES)
        op = made.life.issue(key)
        made.step()
        made.pools.drain(wait=True)
        made.life.cut(key, made.pools.read_tokens(op))
        made.life.begin_pass()
        assert made.life.orphans == []
        assert made.admit(key) == 3 * PAGE
        made.finish(key)
        made.life.evict("node")
        assert made.life.idle


def test_a_read_that_failed_has_nothing_to_keep_although_its_answer_is_still_on_its_way() -> None:
    store = UnsureStore()
    with world(store=store) as made:
        made.plant("node", rows(3), *NAMES)
        made.write(*NAMES)
        key = made.enqueue("r", *NAMES)
        op = made.life.issue(key)
        made.pools.drain(wait=True)
        store.broken = True
        made.life.begin_pass()
        made.pools.drain(wait=True)
        assert made.pools.read_tokens(op) == 0
        with pytest.raises(NotReadError, match="has read 0 pages, not 1"):
            made.life.cut(key, PAGE)
        made.life.cut(key)
        made.life.begin_pass()
        assert made.pools.host.free_pages == SIZES.host_pages
        made.life.abort(key)
        made.life.evict("node")


def test_the_late_answer_of_a_question_that_was_undone_is_not_taken_for_the_next_one() -> None:
    with world() as made:
        made.pools.storage.pause()
        key = made.enqueue("r", "p0")
        locked, made.pools.lock_anchor = made.pools.lock_anchor, None
        with pytest.raises(TypeError):
            made.life.issue(key, anchor=Anchor("node", PAGE))
        made.pools.lock_anchor = locked
        made.chains["r"] = ("p1",)
        made.store.write("kv", "p1", bytes(PAGE * SIZES.width * 4))
        op = made.life.issue(key)
        assert op == 1
        made.pools.storage.resume()
        made.step()
        assert made.life.state(key) == "transferring"
        made.step()
        made.life.abort(key)


def test_a_hold_goes_back_only_when_its_copy_to_the_device_was_acknowledged() -> None:
    with world() as made:
        made.plant("node", rows(3), *NAMES)
        made.write(*NAMES)
        key = fetched(made, "r", *NAMES)
        made.pools.copies.pause()
        made.pools.seat(key, 3 * PAGE)
        made.life.admit(key)
        assert (made.life.occupied_tokens, made.pools.host.free_pages) == (0, SIZES.host_pages - 3)
        assert not made.pools.ready(key)
        made.pools.copies.resume()
        made.pools.drain(wait=True)
        assert made.pools.host.free_pages == SIZES.host_pages
        assert made.pools.ready(key)
        made.finish(key)
        made.life.evict("node")


def test_a_seat_that_is_being_copied_to_is_not_handed_out_again() -> None:
    with world() as made:
        made.plant("node", rows(3), *NAMES)
        made.write(*NAMES)
        key = fetched(made, "r", *NAMES)
        made.pools.copies.pause()
        made.pools.seat(key, 3 * PAGE)
        made.life.admit(key)
        free = made.pools.device.free_tokens
        made.finish(key)
        assert made.pools.device.free_tokens == free
        made.pools.copies.resume()
        made.pools.drain(wait=True)
        assert made.pools.device.free_tokens == free + 3 * PAGE
        made.life.evict("node")


def test_admission_without_a_seat_is_refused_and_the_hold_stays() -> None:
    with world() as made:
        made.plant("node", rows(1), "p0")
        made.write("p0")
        key = fetched(made, "r", "p0")
        with pytest.raises(OwnershipError, match="call seat before admit"):
            made.life.admit(key)
        assert made.life.state(key) == "loaded"
        made.life.abort(key)
        made.life.evict("node")


def test_a_write_that_is_no_longer_tracked_keeps_its_page_until_the_thread_is_done() -> None:
    with world() as made:
        made.plant("node", rows(1), "p0")
        made.pools.copies.pause()
        made.life.write("kv", ["p0"])
        made.life.flush()
        assert made.pools.host.free_pages == SIZES.host_pages - 1
        made.pools.copies.resume()
        made.step()
        assert made.pools.host.free_pages == SIZES.host_pages
        assert len(made.store) == 0
        made.life.evict("node")


def test_a_page_written_again_while_its_former_write_is_under_way_is_acknowledged_by_its_own() -> None:
    with world() as made:
        made.plant("node", rows(1), "p0")
        made.pools.copies.pause()
        made.life.write("kv", ["p0"])
        made.life.flush()
        made.life.write("kv", ["p0"])
        made.pools.copies.resume()
        made.step()
        made.life.begin_pass()
        assert made.life.beliefs.state("kv", "p0") == "believed"
        made.life.evict("node")


def test_pages_that_writes_hold_leave_no_room_for_a_hit() -> None:
    with world() as made:
        made.plant("node", rows(3), *NAMES)
        made.write(*NAMES)
        for number in range(3):
            made.plant(f"big {number}", rows(4), *(f"q{number}{page}" for page in range(4)))
        made.pools.copies.pause()
        made.life.write("kv", [f"q{number}{page}" for number in range(3) for page in range(4)])
        assert made.pools.host.free_pages == 0
        key = made.enqueue("r", *NAMES)
        made.life.issue(key)
        while made.life.state(key) == "probing":
            made.pools.drain()
            made.life.begin_pass()
        assert made.life.state(key) == "parked"
        assert not made.life.unparked(key)
        made.pools.copies.resume()
        made.step()
        made.step()
        assert made.life.unparked(key)
        made.step()
        made.life.abort(key)
        for node in ("node", "big 0", "big 1", "big 2"):
            made.life.evict(node)


def test_a_write_without_host_pages_is_refused_and_leaves_nothing() -> None:
    with world(replace(SIZES, host_pages=2)) as made:
        made.plant("node", rows(3), *NAMES)
        with pytest.raises(PoolExhaustedError):
            made.life.write("kv", NAMES)
        assert made.life.beliefs.state("kv", "p0") == "unknown"
        assert made.pools.write_pages == 0
        assert made.life.write("kv", NAMES[:2]) == ["p0", "p1"]
        made.step()
        made.life.evict("node")


def test_a_write_of_a_page_that_is_not_on_the_device_is_refused() -> None:
    with world() as made:
        with pytest.raises(OwnershipError, match="page p0 of kv is not on the device"):
            made.life.write("kv", ["p0"])
        with pytest.raises(OwnershipError, match="there is no pool mamba: use one of kv"):
            made.life.write("mamba", ["p0"])


def test_a_page_that_storage_lost_ends_the_read_before_it() -> None:
    class Losing(MemoryStore):
        def read(self, pool: str, name: str, into: memoryview) -> bool:
            return name != "p1" and super().read(pool, name, into)

    with world(store=Losing()) as made:
        made.plant("node", rows(3), *NAMES)
        made.write(*NAMES)
        key = fetched(made, "r", *NAMES)
        assert made.pools.fetch_pages == 1
        assert made.admit(key) == PAGE
        made.finish(key)
        made.life.evict("node")


def test_the_tail_of_a_partial_hit_is_asked_for_behind_what_is_held() -> None:
    with world() as made:
        kept = rows(3)
        made.plant("node", kept, *NAMES)
        made.write("p0")
        made.life.enqueue("head", PAGE)
        key = fetched(made, "r", *NAMES)
        assert made.life.reason(key) == "partial_hit"
        made.write("p1", "p2")
        while key not in made.life.begin_pass():
            pass
        made.life.issue(key, tokens=2 * PAGE)
        made.step()
        made.step()
        assert made.admit(key) == 3 * PAGE
        assert torch.equal(made.pools.device.load("kv", made.pools.seated(key).full), kept)
        made.finish(key)
        made.life.evict("node")


def test_a_hold_that_is_gone_cannot_be_admitted() -> None:
    with world() as made:
        made.plant("node", rows(1), "p0")
        made.write("p0")
        key = fetched(made, "r", "p0")
        made.pools.release_hold(key, 1)
        made.pools.seat(key, PAGE)
        with pytest.raises(UseAfterFreeError, match="has 0 pages, not 1"):
            made.life.admit(key)
        made.life.abort(key)
        made.pools.unseat(key)
        made.life.evict("node")


def test_pools_that_were_not_connected_say_so() -> None:
    with world() as made:
        made.pools._life = None
        key = made.enqueue("r", "p0")
        made.life.issue(key)
        with pytest.raises(RuntimeError, match=r"pools.connect\(life\)"):
            made.pools.drain(wait=True)
        made.life.abort(key)


def test_books_that_disagree_are_named() -> None:
    with world() as made:
        made.plant("node", rows(1), "p0")
        made.write("p0")
        key = fetched(made, "r", "p0")
        leaked = made.pools._holds.pop(key)
        found = made.pools.disagreements(made.life)
        assert any("belong to nobody: leaked" in line for line in found)
        assert "host tokens: the pools have 0, the lifecycle counts 4" in found
        made.pools._holds[key] = leaked
        made.life.abort(key)
        made.life.evict("node")
