"""Nodes on torch pools: locks, tombstones, and load-backs from the host."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from executor_support import HYBRID, PAGE, World, rows, world

from hicache_fsm.executor.errors import OwnershipError, PoolExhaustedError, StillUnderIoError
from hicache_fsm.executor.rig import PlantedError
from hicache_fsm.runtime import AttemptKey

NAMES = ("p0", "p1", "p2")


@pytest.fixture
def kept() -> Iterator[World]:
    """A node of three pages that the host keeps, too; in the end it goes, and nothing is left."""
    with world(HYBRID) as made:
        made.plant("node", rows(3), *NAMES)
        made.pools.keep_on_host("node")
        made.pools.drain(wait=True)
        yield made
        made.pools.drop_from_host("node")
        made.life.evict("node")
        assert made.pools.empty
        assert made.pools._places == {}


def load_back(made: World) -> None:
    assert made.life.load("node", "loader")
    assert made.pools.drain(wait=True) == [("node", "loader")]
    assert made.life.loaded_back("node", "loader")


def as_it_was(made: World) -> bool:
    """Whether each part of the node has its rows."""
    blocks = zip(made.pools.parts, made.pools.span_of("node").blocks, strict=True)
    return all(torch.equal(made.pools.device.load(part, block), rows(3)) for part, block in blocks)


def test_a_node_that_is_being_copied_keeps_its_slots_when_it_is_evicted() -> None:
    with world() as made:
        made.plant("node", rows(3), *NAMES)
        made.pools.copies.pause()
        made.life.write("kv", NAMES)
        free = made.pools.device.free_tokens
        made.life.evict("node")
        assert made.pools.device.free_tokens == free
        made.pools.copies.resume()
        made.step()
        made.step()
        assert made.pools.device.free_tokens == free + 3 * PAGE


def test_a_locked_node_cannot_be_freed() -> None:
    with world() as made:
        made.plant("node", rows(1), "p0")
        made.pools.lock_anchor(AttemptKey("r", 0), "node", PAGE, lambda way: None)
        with pytest.raises(OwnershipError, match="locked by r#0"):
            made.life.evict("node")
        made.pools.unlock_anchor(AttemptKey("r", 0), "node", PAGE)
        made.life.evict("node")


def test_a_tombstone_is_freed_on_its_full_side_only_36637() -> None:
    with world(HYBRID) as made:
        made.plant("node", rows(3), *NAMES)
        made.life.tombstone("node")
        assert {name: pool.free for name, pool in made.pools.device.pools.items()} == {"kv": 52, "swa": 64}
        made.life.evict("node")
        assert made.pools.empty


def test_a_load_back_brings_an_evicted_node_as_it_was(kept: World) -> None:
    kept.life.evict("node")
    kept.plant("other", rows(3, seed=1), "q0", "q1", "q2")
    load_back(kept)
    assert as_it_was(kept)
    kept.life.evict("other")


def test_a_load_back_brings_the_side_that_a_tombstone_lost(kept: World) -> None:
    kept.life.tombstone("node")
    load_back(kept)
    assert as_it_was(kept)


def test_a_load_back_is_acknowledged_by_its_copy_only(kept: World) -> None:
    kept.life.evict("node")
    kept.pools.copies.pause()
    kept.life.load("node", "loader")
    assert not kept.life.load("node", "another")
    with pytest.raises(StillUnderIoError):
        kept.life.loaded_back("node", "loader")
    kept.pools.copies.resume()
    kept.pools.drain(wait=True)
    assert kept.life.loaded_back("node", "loader")


def test_a_load_back_that_is_undone_leaves_its_pages_nowhere(kept: World) -> None:
    kept.life.evict("node")
    kept.executor.armed = "claim", "after"
    with pytest.raises(PlantedError):
        kept.life.load("node", "loader")
    kept.executor.armed = None
    assert kept.pools._places == {}
    load_back(kept)


def test_a_load_back_that_gets_the_full_side_but_not_the_window_side_leaves_nothing() -> None:
    with world(replace(HYBRID, swa_tokens=16)) as made:
        made.plant("node", rows(3), *NAMES)
        made.pools.keep_on_host("node")
        made.pools.drain(wait=True)
        made.life.evict("node")
        made.plant("other", rows(3), "q0", "q1", "q2")
        free = made.pools.device.pools["kv"].free
        with pytest.raises(PoolExhaustedError):
            made.life.load("node", "loader")
        assert made.pools.device.pools["kv"].free == free
        assert made.pools.disagreements(made.life) == []
        made.life.evict("other")
        load_back(made)
        made.pools.drop_from_host("node")
        made.life.evict("node")
