"""docs/embedding.md shows only what runs, and names only what there is; tests/test_docs.py runs its dialogues."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_support import World, rows, world

from hicache_fsm.executor.embedding import IN_FLIGHT
from hicache_fsm.executor.errors import UseAfterFreeError
from hicache_fsm.executor.stores import MemoryStore
from hicache_fsm.executor.torchpools import TorchPools
from hicache_fsm.runtime import HiCacheLifecycle
from hicache_fsm.spec import load_spec

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/embedding.md").read_text()
PROGRAMS = ("examples/scheduler.py", "tests/sglang/pools_on_files.py")
OF_SGLANG = {"empty", "names", "plant"}
NAMES = ("p0", "p1")


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def lines(text: str) -> str:
    """The lines without their indentation, which a page does not keep."""
    return "\n" + "\n".join(line.strip() for line in text.splitlines()) + "\n"


def runs(block: str) -> bool:
    return block.startswith(">>> ") or any(
        lines(block) in lines((ROOT / program).read_text()) for program in PROGRAMS
    )


def test_every_block_is_a_dialogue_or_stands_in_a_program_that_tests_run() -> None:
    found = blocks(GUIDE)
    assert [block for block in found if not runs(block)] == []
    assert len(found) >= 12


def test_a_block_that_no_program_has_is_told_apart() -> None:
    block = next(block for block in blocks(GUIDE) if "self.pools.match(key)" in block)
    assert runs(block)
    assert not runs(block.replace("asks=missing > 0", "asks=True"))


def test_every_method_that_the_guide_names_is_there() -> None:
    named = set(re.findall(r"\b(pools|life)\.(\w+)", GUIDE))
    there = {
        "pools": {*dir(TorchPools), "device", "store", "host"} | OF_SGLANG,
        "life": {*dir(HiCacheLifecycle)},
    }
    assert [name for side, name in named if name not in there[side]] == []
    assert len(named) >= 30


def test_the_states_in_flight_are_those_that_cannot_be_admitted() -> None:
    machine = load_spec().machines["prefetch"]
    admitted = {row.source for row in machine.transitions if row.event == "admit"}
    waiting = {name for name in machine.states if name not in ("scheduled", "aborted")}
    assert waiting - admitted == set(IN_FLIGHT)


@pytest.fixture
def made() -> Iterator[World]:
    """Two pages on the device and in storage."""
    with world() as made:
        made.plant("node", rows(2), *NAMES)
        made.write(*NAMES)
        yield made
        for _ in range(3):
            made.step()
        made.life.evict("node")
        assert made.pools.empty


@pytest.mark.parametrize("passes", range(3))
def test_after_a_flush_the_waiting_start_over_and_ask_again(made: World, passes: int) -> None:
    key = made.enqueue("r", *NAMES)
    made.life.issue(key)
    for _ in range(passes):
        made.step()
    made.life.flush()
    assert made.life.state(key) == "queued"
    made.life.issue(key)
    made.step()
    made.step()
    assert made.admit(key) == len(NAMES) * made.pools.sizes.page_size
    made.finish(key)


def test_another_store_may_follow_between_a_detach_and_an_attach(made: World) -> None:
    made.life.detach()
    made.pools.drain(wait=True)
    made.pools.store = MemoryStore()
    made.life.attach()
    assert made.life.write("kv", NAMES) == list(NAMES)
    made.step()
    assert len(made.pools.store) == len(NAMES)


def test_an_answer_whose_effect_raised_is_taken_in_by_the_next_pass(made: World) -> None:
    key = made.enqueue("r", *NAMES)
    made.life.issue(key)
    made.pools.drain(wait=True)
    take, made.pools.take_pages = made.pools.take_pages, lost_slots
    with pytest.raises(UseAfterFreeError):
        made.life.begin_pass()
    made.pools.take_pages = take
    made.life.begin_pass()
    assert made.life.state(key) == "transferring"
    made.life.abort(key)


def lost_slots(*_: object) -> None:
    raise UseAfterFreeError("planted")
