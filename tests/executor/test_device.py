"""Dense, hybrid and all-SWA device pools: which side a free releases (#36637)."""

import pytest
import torch

from hicache_fsm.executor.device import DevicePool
from hicache_fsm.executor.errors import DoubleFreeError, PeerError, PoolExhaustedError


def hybrid(swa_tokens: int = 8) -> DevicePool:
    return DevicePool("hybrid", 8, 2, swa_tokens=swa_tokens)


def free(pool: DevicePool) -> dict[str, int]:
    return {name: side.free for name, side in pool.pools.items()}


def test_a_plain_free_releases_both_halves_of_a_hybrid_slot() -> None:
    pool = hybrid()
    span = pool.take(3, "a")
    assert free(pool) == {"kv": 5, "swa": 5}
    pool.free(span)
    assert free(pool) == {"kv": 8, "swa": 8}
    assert bool((pool.full_to_swa == -1).all())


def test_a_tombstone_keeps_its_full_half_which_free_full_releases_36637() -> None:
    pool = hybrid()
    span = pool.take(3, "a")
    pool.free_swa(span)
    assert free(pool) == {"kv": 5, "swa": 8}
    pool.free_full(span)
    assert free(pool) == {"kv": 8, "swa": 8}


def test_a_plain_free_of_a_tombstone_raises_and_frees_nothing_36637() -> None:
    pool = hybrid()
    span = pool.take(3, "a")
    pool.free_swa(span)
    with pytest.raises(PeerError, match="no SWA side any more"):
        pool.free(span)
    assert free(pool) == {"kv": 5, "swa": 8}


def test_free_full_while_the_peer_is_mapped_raises_and_frees_nothing_36637() -> None:
    pool = hybrid()
    span = pool.take(3, "a")
    with pytest.raises(PeerError, match="free both"):
        pool.free_full(span)
    assert free(pool) == {"kv": 5, "swa": 5}


def test_the_swa_half_is_freed_once() -> None:
    pool = hybrid()
    span = pool.take(3, "a")
    pool.free_swa(span)
    with pytest.raises(DoubleFreeError):
        pool.free_swa(span)


def test_a_mapping_that_leads_to_other_slots_is_caught() -> None:
    pool = hybrid()
    span = pool.take(2, "a")
    assert span.full is not None
    pool.full_to_swa[span.full.slots] = pool.full_to_swa[span.full.slots].flip(0)
    with pytest.raises(PeerError, match="other SWA slots"):
        pool.free(span)


def test_a_tombstone_gets_a_new_swa_half() -> None:
    pool = hybrid()
    span = pool.take(3, "a")
    pool.free_swa(span)
    pool.take_swa(span, 3, "a")
    assert span.full is not None
    assert span.swa is not None
    assert torch.equal(pool.full_to_swa[span.full.slots], span.swa.slots)
    pool.free(span)
    assert free(pool) == {"kv": 8, "swa": 8}


def test_without_room_on_the_swa_side_nothing_is_taken() -> None:
    pool = hybrid(swa_tokens=2)
    with pytest.raises(PoolExhaustedError):
        pool.take(3, "a")
    assert free(pool) == {"kv": 8, "swa": 2}


def test_a_dense_pool_has_one_side_and_free_full_is_a_plain_free() -> None:
    pool = DevicePool("dense", 8, 2)
    span = pool.take(3, "a")
    pool.free_swa(span)
    assert free(pool) == {"kv": 5}
    pool.free_full(span)
    assert free(pool) == {"kv": 8}


def test_on_a_pool_that_is_all_swa_free_full_releases_nothing() -> None:
    pool = DevicePool("swa", 0, 2, swa_tokens=8)
    span = pool.take(3, "a")
    pool.free_full(span)
    assert free(pool) == {"swa": 5}
    pool.free_swa(span)
    pool.free_full(span)
    assert free(pool) == {"swa": 8}


def test_a_split_span_keeps_its_mapping() -> None:
    pool = hybrid()
    head, tail = pool.take(5, "a").split(2)
    assert (len(head), len(tail)) == (2, 3)
    pool.free(head)
    pool.free(tail)
    assert (free(pool), pool.audit()) == ({"kv": 8, "swa": 8}, [])
