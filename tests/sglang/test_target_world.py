"""What a world of pages is in tokens, and what the parent refuses before any engine starts."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_fsm.sglang.record import HarnessMissingError
from hicache_fsm.sglang.target.world import FIRST, PAGE, Pages, PlainWorld
from hicache_fsm.suite.protocol import UnsupportedError, World
from hicache_fsm.suite.targets.sglang import Child, EngineError, SglangCache, make


def plain(**fields: object) -> PlainWorld:
    return PlainWorld.of(asdict(World(prompts={"r": ("a", "b")}, **fields)))  # type: ignore[arg-type]


@given(st.lists(st.text("abcdefgh", min_size=1, max_size=3), unique=True, max_size=60))
def test_each_page_has_tokens_of_its_own_and_always_the_same(names: list[str]) -> None:
    pages = Pages()
    first = [tuple(pages.tokens([name])) for name in names]
    assert len(set(first)) == len(names)
    assert all(len(tokens) == PAGE and min(tokens) >= FIRST for tokens in first)
    assert [tuple(pages.tokens([name])) for name in names] == first


def test_a_page_hangs_below_the_same_pages_wherever_it_occurs() -> None:
    pages = Pages()
    pages.learn(["a", "b"])
    pages.learn(["b", "c"])
    assert pages.paths == {"a": ("a",), "b": ("a", "b"), "c": ("a", "b", "c")}


def test_the_page_that_output_goes_to_leaves_the_headroom_as_the_world_says() -> None:
    world = plain(pool=16, context=6)
    assert world.pool_tokens - world.context_tokens == (16 - 6) * PAGE


def test_an_untold_context_length_bounds_nothing() -> None:
    assert plain(pool=16, context=0).context_tokens == plain(pool=16).pool_tokens


@pytest.mark.parametrize(("pool", "fraction"), [(16, 0.5), (9, 0.5), (7, 1.0), (8, 0.0)])
def test_the_share_of_pins_is_whole_pages(pool: int, fraction: float) -> None:
    world = plain(pool=pool, cap_fraction=fraction)
    assert int(world.fraction * world.pool_tokens) == int(fraction * pool) * PAGE


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (World(prompts={}, ranks=2), "runs one rank, not 2"),
        (World(prompts={}, layout="swa"), "runs the dense layout, not swa"),
        (World(prompts={}, mode="write_back"), "has no mode write_back"),
    ],
)
def test_a_world_that_the_engine_cannot_have_is_refused_before_it_starts(world: World, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        make("0.5.23").build(world)


def test_an_unknown_version_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"unknown SGLang version 1\.0: this harness knows 0\.5\.19, .*0\.5\.23"
    ):
        make("1.0")


def test_a_missing_harness_names_the_command_that_lays_it_out(tmp_path: Path) -> None:
    target = make("0.5.23", root=tmp_path)
    with pytest.raises(HarnessMissingError, match="make sglang"):
        target.build(World(prompts={"r": ("a",)}))


def test_a_target_travels_to_another_process_without_its_engines() -> None:
    target = pickle.loads(pickle.dumps(make("0.5.19", in_order=True, stuck=True)))
    assert (target.name, target.in_order, target.stuck, target.machine_pins) == (
        "sglang-0.5.19",
        True,
        True,
        False,
    )


def test_a_world_that_was_closed_is_not_driven_any_more() -> None:
    cache = SglangCache("sglang-0.5.23", Child("0.5.23", "buffer_only"))
    with pytest.raises(EngineError, match="this world was closed"):
        cache.observe()
