"""Each slot has one owner, and waits for the I/O that its owner's release met."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hicache_fsm.executor.errors import (
    DoubleFreeError,
    OwnershipError,
    PoolExhaustedError,
    UseAfterFreeError,
)
from hicache_fsm.executor.lanes import Job
from hicache_fsm.executor.slots import Block, SlotPool


def job(*blocks: Block) -> Job:
    return Job(lambda job: None, lambda job: None, blocks)


def test_slots_are_taken_once_and_come_back() -> None:
    pool = SlotPool("pool", 8)
    first, second = pool.take(3, "a"), pool.take(5, "b")
    assert sorted([*first.slots.tolist(), *second.slots.tolist()]) == list(range(8))
    assert pool.free == 0
    first.release()
    second.release()
    assert (pool.free, pool.audit()) == (8, [])


def test_more_slots_than_are_free_are_refused_and_nothing_is_taken() -> None:
    pool = SlotPool("pool", 4)
    pool.take(3, "a")
    with pytest.raises(PoolExhaustedError, match="b wants 2 pool slots, 1 are free"):
        pool.take(2, "b")
    assert (pool.free, pool.audit()) == (1, [])


def test_a_second_release_raises() -> None:
    block = SlotPool("pool", 4).take(2, "a")
    block.release()
    with pytest.raises(DoubleFreeError, match="given back twice"):
        block.release()


def test_slots_that_were_freed_cannot_be_used() -> None:
    block = SlotPool("pool", 4).take(2, "a")
    block.release()
    for use in (
        lambda: block.slots,
        lambda: block.split(1),
        lambda: block.pass_on("b"),
        lambda: job(block),
    ):
        with pytest.raises(UseAfterFreeError):
            use()


def test_released_slots_stay_owned_until_the_last_io_on_them_has_ended_31668() -> None:
    pool = SlotPool("pool", 4)
    block = pool.take(4, "a")
    read, write = job(block), job(block)
    block.release()
    assert (block.state, pool.free) == ("leaving", 0)
    read.end()
    assert pool.free == 0
    write.end()
    assert (block.state, pool.free) == ("free", 4)


def test_a_split_leaves_both_halves_under_the_io_of_the_whole() -> None:
    pool = SlotPool("pool", 4)
    block = pool.take(4, "a")
    read = job(block)
    head, tail = block.split(1)
    read.give_back(head)
    head.release()
    tail.release()
    assert pool.free == 1
    read.end()
    assert (pool.free, pool.audit()) == (4, [])


def test_a_block_that_was_split_is_gone() -> None:
    block = SlotPool("pool", 4).take(4, "a")
    block.split(2)
    with pytest.raises(DoubleFreeError):
        block.release()
    with pytest.raises(UseAfterFreeError, match="used after they were freed"):
        _ = block.slots


def test_returned_indices_do_not_alias_the_free_list_31296() -> None:
    pool = SlotPool("pool", 4)
    block = pool.take(2, "a")
    before = block.slots.clone()
    other = pool.take(2, "b")
    other.release()
    pool.take(1, "c")
    assert torch.equal(block.slots, before)
    stack = pool._stack.clone()
    block.slots.fill_(0)
    assert torch.equal(pool._stack, stack)


def test_an_aliased_index_tensor_is_caught_31296(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "clone", lambda self: self)
    pool = SlotPool("pool", 4)
    first, second = pool.take(2, "a"), pool.take(2, "b")
    first.release()
    with pytest.raises(OwnershipError):
        second.release()


def test_slots_freed_under_io_are_caught_when_the_io_ends() -> None:
    pool = SlotPool("pool", 4)
    block = pool.take(4, "a")
    read = job(block)
    pool._reclaim(block)
    with pytest.raises(UseAfterFreeError, match="while I/O was under way"):
        read.end()


def test_the_audit_names_lost_and_doubled_slots() -> None:
    pool = SlotPool("pool", 4)
    pool.take(2, "a")
    pool._stack[0] = pool._stack[1]
    assert [line.split(": ")[1] for line in pool.audit()] == [
        "1 slots are neither free nor owned",
        "1 slots are free or owned more than once",
    ]


def test_the_audit_names_a_block_that_is_free_and_kept_all_the_same() -> None:
    pool = SlotPool("pool", 4)
    pool.take(2, "a").state = "free"
    assert pool.audit() == ["pool: <2 pool slots of a, free> is still in the books"]


@given(st.lists(st.tuples(st.sampled_from(["take", "release", "split", "lend", "end"]), st.integers(0, 7))))
def test_free_and_owned_slots_add_up_whatever_is_done(steps: list[tuple[str, int]]) -> None:
    pool = SlotPool("pool", 16)
    jobs: list[Job] = []
    for step, number in steps:
        held = [block for block in pool.blocks() if block.state == "held"]
        match step:
            case "take" if number <= pool.free:
                pool.take(number, str(number))
            case "release" if held:
                held[number % len(held)].release()
            case "split" if held:
                block = held[number % len(held)]
                block.split(min(number, len(block)))
            case "lend" if held:
                jobs.append(job(held[number % len(held)]))
            case "end" if jobs:
                jobs.pop(number % len(jobs)).end()
        assert pool.audit() == []
        assert pool.free + sum(map(len, pool.blocks())) == pool.capacity
    for last in jobs:
        last.end()
    for block in pool.blocks():
        block.release()
    assert pool.free == pool.capacity
