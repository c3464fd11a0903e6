"""Beliefs about storage: healed by evidence (#36386)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_support import lifecycle

from hicache_fsm.runtime import HiCacheLifecycle, WriteCompletion

CHAIN = ["p0", "p1", "p2", "p3"]


def believing(profile: str = "recommended", **options: str) -> HiCacheLifecycle:
    life = lifecycle(profile, **options)
    life.stored("kv", life.write("kv", CHAIN))
    return life


def believed(life: HiCacheLifecycle) -> list[str]:
    return [page for page in CHAIN if life.beliefs.state("kv", page) == "believed"]


def test_a_page_is_written_once_while_it_is_believed_or_in_flight() -> None:
    life = lifecycle()
    assert life.write("kv", CHAIN) == CHAIN
    assert life.write("kv", CHAIN) == []
    life.stored("kv", CHAIN)
    assert life.write("kv", CHAIN) == []


def test_a_discarded_fetch_heals_from_the_first_page_some_pool_did_not_serve_36386() -> None:
    life = believing()
    assert life.discard("kv", CHAIN, completed_pages=4, transfers=[(2, 1)]) == 2
    assert believed(life) == ["p0", "p1"]
    assert life.write("kv", CHAIN) == ["p2", "p3"]


def test_a_transfer_without_keys_proves_nothing_36386() -> None:
    life = believing()
    assert life.discard("kv", CHAIN, completed_pages=4, transfers=[(None, 0)]) == 0
    assert believed(life) == []


def test_a_page_that_occurs_again_beyond_the_kept_ones_is_forgotten() -> None:
    life = believing()
    life.discard("kv", ["p0", "p1", "p0"], completed_pages=2, transfers=[])
    assert believed(life) == ["p1", "p2", "p3"]


def test_cache_mode_believes_nothing_and_a_discard_is_a_no_op_36386() -> None:
    life = believing(mode="cache")
    assert life.discard("kv", CHAIN, 4, [(2, 1)]) == 0
    assert len(life.beliefs) == 0


@pytest.mark.parametrize(("profile", "state"), [("seed", "believed"), ("recommended", "unknown")])
def test_a_failed_write_is_believed_upstream_only(profile: str, state: str) -> None:
    life = lifecycle(profile, interval=2)
    life.write_failed("kv", life.write("kv", ["p0"]))
    assert life.beliefs.state("kv", "p0") == state
    assert [violation.invariant for violation in life.check()] == (
        ["belief-evidence"] if profile == "seed" else []
    )


@pytest.mark.parametrize(("profile", "left"), [("seed", CHAIN), ("recommended", [])])
def test_beliefs_outlive_the_backend_upstream_only(profile: str, left: list[str]) -> None:
    life = believing(profile)
    life.detach()
    life.attach()
    assert believed(life) == left


def test_a_question_that_found_pages_absent_heals_them_too() -> None:
    life = believing()
    life.deny("kv", ["p2"])
    life.confirm("kv", ["p9"])
    assert (believed(life), life.beliefs.state("kv", "p9")) == (["p0", "p1", "p3"], "believed")


def test_a_cleared_storage_is_forgotten_but_not_the_writes_in_flight() -> None:
    life = believing()
    life.write("kv", ["new"])
    life.clear()
    assert (believed(life), life.beliefs.state("kv", "new")) == ([], "writing")


def test_a_flush_forgets_writes_in_flight_and_their_late_answers_change_nothing() -> None:
    life = believing()
    life.write("kv", ["new"])
    life.flush()
    life.stored("kv", ["new"])
    assert (believed(life), life.beliefs.state("kv", "new")) == (CHAIN, "unknown")


def test_write_acknowledgements_are_drained_by_every_pass_however_idle_20049_20560() -> None:
    life = lifecycle()
    life.post(WriteCompletion("kv", life.write("kv", ["p0"]), ok=True))
    assert not life.idle
    life.begin_pass()
    assert life.beliefs.state("kv", "p0") == "believed"
    assert life.idle


@settings(deadline=None)
@given(
    st.integers(0, 6),
    st.lists(st.tuples(st.none() | st.integers(0, 5), st.integers(0, 5)), max_size=3),
    st.integers(0, 5),
)
def test_after_a_discard_nothing_beyond_what_was_served_is_believed_36386(
    completed: int, transfers: list[tuple[int | None, int]], length: int
) -> None:
    chain = CHAIN[:length]
    life = believing()
    kept = life.discard("kv", chain, completed, transfers)
    assert set(believed(life)).isdisjoint(chain[kept:])
    assert set(believed(life)).issuperset(chain[:kept])
    assert life.check() == []
