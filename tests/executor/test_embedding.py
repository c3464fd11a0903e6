"""What a scheduler on torch pools does beside the lifecycle: match, seat, make room, end."""

from collections.abc import Iterator

import pytest
import torch
from executor_support import HYBRID, PAGE, SIZES, World, rows, world

from hicache_fsm.executor.chains import page_names
from hicache_fsm.executor.embedding import IN_FLIGHT, evict, make_room, shut_down
from hicache_fsm.executor.errors import OwnershipError
from hicache_fsm.executor.rig import PlantedError, UnsureStore
from hicache_fsm.runtime import Anchor, AttemptKey

NAMES = ("p0", "p1", "p2", "p3")
CAPPED = 1000
"""Tokens of an anchor that no cap has room for: the fetch goes on unpinned, and its node may go."""


@pytest.fixture
def made() -> Iterator[World]:
    """Storage has four pages, the device the first two of them, as `node`."""
    store = UnsureStore()
    with world(store=store) as made:
        made.plant("whole", rows(4), *NAMES)
        made.write(*NAMES)
        made.life.evict("whole")
        made.plant("node", rows(2), *NAMES[:2])
        yield made
        made.pools.storage.resume()
        store.go.set()
        for _ in range(3):
            made.step()
        for node in made.pools.evictable():
            made.life.evict(node)
        assert made.pools.empty


def asked(made: World, *, passes: int, anchor: Anchor | None = None) -> AttemptKey:
    """A request that asked for what `node` has not, so many passes ago; behind one that does nothing."""
    key = made.enqueue("r", *NAMES)
    _, missing = made.pools.match(key)
    made.life.issue(key, tokens=missing, anchor=anchor)
    for _ in range(passes):
        made.step()
    return key


# what the device has


def test_a_match_is_the_node_that_has_most_of_the_prompt_and_what_is_missing_then(made: World) -> None:
    made.plant("longer but other", rows(3), "p0", "q1", "q2")
    key = made.enqueue("r", *NAMES)
    assert made.pools.match(key) == (Anchor("node", 2 * PAGE), 2 * PAGE)
    stranger = made.enqueue("stranger", "s0")
    assert made.pools.match(stranger) == (None, PAGE)
    for one in (key, stranger):
        made.life.abort(one)


def test_an_anchor_has_the_tokens_of_its_whole_node_however_little_the_prompt_shares(made: World) -> None:
    key = made.enqueue("r", "p0", "other")
    assert made.pools.match(key) == (Anchor("node", 2 * PAGE), PAGE)
    made.life.abort(key)


def test_a_node_that_is_being_loaded_back_serves_nobody_yet(made: World) -> None:
    made.pools.keep_on_host("node")
    made.pools.drain(wait=True)
    made.life.evict("node")
    made.pools.copies.pause()
    made.life.load("node", "loader")
    key = made.enqueue("r", *NAMES)
    assert made.pools.match(key) == (None, 4 * PAGE)
    made.pools.copies.resume()
    made.life.loaded_back(*made.pools.drain(wait=True)[0])
    assert made.pools.match(key)[1] == 2 * PAGE
    made.pools.drop_from_host("node")
    made.life.abort(key)


def test_a_node_without_its_window_side_serves_nobody() -> None:
    with world(HYBRID) as made:
        made.plant("node", rows(2), *NAMES[:2])
        made.life.tombstone("node")
        key = made.enqueue("r", *NAMES)
        assert made.pools.match(key) == (None, 4 * PAGE)
        made.life.abort(key)
        made.life.evict("node")


# seats


@pytest.mark.parametrize("sizes", [SIZES, HYBRID], ids=["dense", "hybrid"])
def test_a_seat_has_the_rows_of_the_prefix_from_the_device_and_of_the_rest_from_storage(
    sizes: object,
) -> None:
    with world(sizes) as made:
        made.plant("whole", rows(4), *NAMES)
        made.write(*NAMES)
        made.life.evict("whole")
        made.plant("node", rows(2), *NAMES[:2])
        key = asked(made, passes=2)
        assert made.admit(key) == 2 * PAGE
        assert made.pools.known_tokens(key) == 4 * PAGE
        for part, block in zip(made.pools.parts, made.pools.seated(key).blocks, strict=True):
            assert torch.equal(made.pools.device.load(part, block), rows(4))
        made.finish(key)
        made.life.evict("node")


def test_a_prefix_that_grew_after_the_question_leaves_the_fetched_pages_in_their_place(made: World) -> None:
    key = asked(made, passes=2)
    made.plant("grown", rows(3), *NAMES[:3])
    made.admit(key)
    assert torch.equal(made.pools.device.load("kv", made.pools.seated(key).full), rows(4))
    made.finish(key)


def test_a_hold_whose_base_is_gone_is_not_admitted_but_given_back_and_asked_for_again(made: World) -> None:
    key = asked(made, passes=2)
    made.life.evict("node")
    made.pools.seat(key, 4 * PAGE)
    with pytest.raises(OwnershipError, match="lost what the hold of r#0 follows: call shrink"):
        made.life.admit(key)
    assert (made.life.state(key), made.pools.stranded()) == ("loaded", [key])
    made.pools.unseat(key)
    made.life.shrink(key)
    assert made.pools.stranded() == []
    assert made.life.begin_pass() == [key]
    made.life.abort(key)


def test_a_question_that_does_not_follow_the_hold_is_refused(made: World) -> None:
    made.enqueue("head", "h")
    made.store.reads = 1
    key = asked(made, passes=1)
    made.store.held.wait()
    made.life.cut(key, made.pools.read_tokens(made.life.operation(key) or 0))
    with pytest.raises(OwnershipError, match="holds pages 2 to 3, and asks from page 2 on"):
        made.life.lose_match(key, tokens=2 * PAGE)
    assert made.life.state(key) == "loaded"
    assert made.pools.match(key)[1] == PAGE
    made.life.abort(key)
    made.life.abort(AttemptKey("head", 0))


# room


@pytest.mark.parametrize("anchor", [None, Anchor("node", CAPPED)], ids=["unknown", "capped"])
@pytest.mark.parametrize(
    ("passes", "state"), [(0, "probing"), (1, "transferring"), (2, "loaded")], ids=lambda value: str(value)
)
def test_whoever_hangs_on_a_node_that_goes_asks_again_for_the_whole(
    made: World, passes: int, state: str, anchor: Anchor | None
) -> None:
    key = asked(made, passes=passes, anchor=anchor)
    assert made.life.state(key) == state
    assert evict(made.life, made.pools, "node") == [key]
    assert (made.life.state(key), made.life.reason(key)) == ("missed", "anchor_lost")
    assert made.life.begin_pass() == [key]
    made.life.issue(key, tokens=made.pools.match(key)[1])
    made.step()
    made.step()
    assert made.admit(key) == 4 * PAGE
    made.finish(key)


def test_a_fetch_goes_on_where_another_node_has_what_it_follows(made: World) -> None:
    made.plant("same", rows(2), *NAMES[:2])
    key = asked(made, passes=1, anchor=Anchor("node", CAPPED))
    assert evict(made.life, made.pools, "node") == []
    made.step()
    assert made.admit(key) == 2 * PAGE
    assert torch.equal(made.pools.device.load("kv", made.pools.seated(key).full), rows(4))
    made.finish(key)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("passes", "effect"), [(0, "end_operation"), (1, "cut_operation"), (2, "release_hold")]
)
def test_what_an_eviction_that_raised_has_not_told_is_told_before_the_next_one(
    made: World, passes: int, effect: str, when: str
) -> None:
    key = asked(made, passes=passes)
    made.executor.armed = effect, when
    with pytest.raises(PlantedError):
        evict(made.life, made.pools, "node")
    made.executor.armed = None
    assert make_room(made.life, made.pools, PAGE)
    assert made.pools.stranded() == []
    while made.life.state(key) in IN_FLIGHT:
        made.step()
    assert made.admit(key) == 0
    made.finish(key)


def test_room_is_made_from_what_was_unused_longest_and_never_from_what_is_pinned(made: World) -> None:
    for node in ("pinned", "old", "used"):
        made.plant(node, rows(3), *(f"{node}{page}" for page in range(3)))
    pins = made.enqueue("pins", *(f"pinned{page}" for page in range(3)), "more")
    anchor, missing = made.pools.match(pins)
    made.life.issue(pins, tokens=missing, anchor=anchor)
    user = made.enqueue("user", "used0", "used1")
    for key in (user, made.enqueue("r", *NAMES)):
        made.pools.match(key)
        made.life.abort(key)
    assert made.pools.evictable() == ["old", "used", "node"]
    free = made.pools.device.free_tokens
    assert make_room(made.life, made.pools, free + 1)
    assert made.pools.evictable() == ["used", "node"]
    assert not make_room(made.life, made.pools, SIZES.device_tokens)
    assert made.pools.nodes() == ["pinned"]
    made.step()
    made.life.abort(pins)


# the end


def test_an_end_at_rest_leaves_nothing() -> None:
    with world() as made:
        made.plant("node", rows(3), *NAMES[:3])
        made.pools.copies.pause()
        made.pools.keep_on_host("node")
        made.life.write("kv", NAMES[:3])
        made.life.abort(made.enqueue("r", "p0"))
        made.pools.copies.resume()
        assert shut_down(made.life, made.pools) == []
        assert len(made.store) == 3


def test_an_end_tells_who_never_left() -> None:
    with world() as made:
        key = made.enqueue("r", "p0")
        made.pools.seat(key, PAGE)
        left = shut_down(made.life, made.pools)
        assert left == ["slots are not free at the end", "the lifecycle is not idle at the end"]


# names


def test_the_name_of_a_page_depends_on_all_tokens_up_to_its_end_and_on_none_behind() -> None:
    names = page_names([*range(10)], 4)
    assert len(names) == len(set(names)) == 2
    assert page_names([*range(8), 99], 4) == names
    assert page_names([*range(7), 99], 4)[0] == names[0]
    assert set(page_names([99, *range(1, 8)], 4)).isdisjoint(names)
    assert page_names([0, 1, 2], 4) == []
