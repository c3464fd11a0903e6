"""Faults of storage calls that speak of several pools, in the shapes of the real SGLang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

import pytest

from hicache_fsm.sglang.excerpt import excerpt
from hicache_fsm.sglang.harness.faults import StorageFaults
from hicache_fsm.sglang.install import DEFAULT_ROOT
from hicache_fsm.sglang.settings import FaultPlan

pytestmark = pytest.mark.sglang
Backend = Callable[..., Any]


@pytest.fixture
def answer() -> Any:
    """``answer(kv_pages, pools)``: what a question to several pools comes back with, in SGLang's own class."""
    source = DEFAULT_ROOT / "0.5.23" / "sglang" / "srt" / "mem_cache" / "hicache_storage.py"
    if not source.exists():
        pytest.skip(f"{source} is missing: run `make sglang`")
    return excerpt(source, ["PoolTransferResult"], dataclass=dataclass, Optional=Optional)[
        "PoolTransferResult"
    ]


def faulty(fault: str, **calls: Backend) -> Any:
    """A backend of these calls each of which goes wrong in this way."""
    backend = SimpleNamespace(**calls)
    controller = SimpleNamespace(storage_backend=backend)
    scheduler = SimpleNamespace(tree_cache=SimpleNamespace(cache_controller=controller))
    engine = SimpleNamespace(clock=object(), scheduler=scheduler)
    StorageFaults(engine, FaultPlan(share=1.0, kinds=(fault,)), seed=3)  # type: ignore[arg-type]
    return backend


def named(function: Callable[..., Any], name: str) -> Any:
    function.__name__ = name
    return function


def test_a_short_answer_of_several_pools_is_short_in_each(answer: Any) -> None:
    call = named(lambda keys, *_: answer(10, {"kv": 10, "swa": 8}), "batch_exists_v2")
    told = faulty("short", batch_exists_v2=call).batch_exists_v2(["page"] * 10)
    assert told.kv_hit_pages < 10
    assert told.extra_pool_hit_pages == {"kv": told.kv_hit_pages, "swa": min(8, told.kv_hit_pages)}


def test_a_wrong_answer_of_several_pools_finds_all_in_each(answer: Any) -> None:
    call = named(lambda keys, *_: answer(3, {"kv": 3, "swa": 2}), "batch_exists_v2")
    told = faulty("wrong", batch_exists_v2=call).batch_exists_v2(["page"] * 10)
    assert (told.kv_hit_pages, told.extra_pool_hit_pages) == (10, {"kv": 10, "swa": 10})


@pytest.mark.parametrize("fault", ["short", "wrong"])
def test_a_faulty_read_of_several_pools_misses_pages_of_each(fault: str) -> None:
    call = named(lambda transfers, **_: {"swa": [True] * 9, "mamba": [True]}, "batch_get_v2")
    told = faulty(fault, batch_get_v2=call).batch_get_v2([None, None])
    assert {pool: len(pages) for pool, pages in told.items()} == {"swa": 9, "mamba": 1}
    assert not any(all(pages) for pages in told.values())


@pytest.mark.parametrize(("fault", "done"), [("short", False), ("wrong", True)])
def test_a_faulty_write_of_several_pools_says_so_page_by_page(fault: str, done: bool) -> None:
    call = named(lambda transfers, **_: {}, "batch_set_v2")
    transfers = [SimpleNamespace(name="swa", keys=["a", "b"]), SimpleNamespace(name="mamba", keys=["b"])]
    told = faulty(fault, batch_set_v2=call).batch_set_v2(transfers)
    assert told == {"swa": [done, done], "mamba": [done]}
