"""The runtime as a target: what its small engine decides, and that its own pools object to what must not happen."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from hicache_fsm.runtime import AttemptKey
from hicache_fsm.suite.language import parse
from hicache_fsm.suite.protocol import Answer, CacheUnderTest, Observed, UnsupportedError, World
from hicache_fsm.suite.targets import target
from hicache_fsm.suite.targets.pools import DeviceTree, HostSlots
from hicache_fsm.suite.targets.runtime import RuntimeTarget

WORLD = World({"h": ("a", "b"), "r": ("a", "b", "c")}, storage=frozenset("abc"))


def driven(lines: Iterable[str], world: World = WORLD, profile: str = "recommended") -> CacheUnderTest:
    """A cache after these events, all of which must happen."""
    cache = target("runtime", profile).build(world)
    for line in lines:
        reply = cache.drive(parse(line))
        assert reply.answer in (Answer.DONE, Answer.SEEN), (line, reply)
    return cache


def after(lines: Iterable[str], world: World = WORLD, profile: str = "recommended") -> Observed:
    """The state after these events."""
    return driven(lines, world, profile).observe()


def answers(cache: CacheUnderTest, line: str) -> Answer:
    """What the cache says of one event."""
    return cache.drive(parse(line)).answer


def test_a_whole_life_leaves_nothing() -> None:
    now = after(["enq r", "hit r", "done r", "admit r", "ack r", "finish r"])
    assert (now.idle, now.occupied, now.host_free, now.faults) == (True, 0, 16, ())
    assert now.requests["r"].state == "finished"


def test_a_told_word_is_seen_until_the_next_event_is_driven() -> None:
    cache = driven(["enq r", "issue r", "issue r", "hit r", "alloc r"])
    assert answers(cache, "issue r") is Answer.ABSENT


def test_a_hit_is_no_more_than_what_is_stored() -> None:
    assert answers(driven(["enq r", "drop c"]), "hit r 3") is Answer.REFUSED


def test_a_question_is_named_by_its_number() -> None:
    world = replace(WORLD, policy="best_effort")
    cache = driven(["enq h", "miss h", "enq r", "cut r", "tick 3", "reissue r", "miss r q=1"], world)
    now = cache.observe()
    assert (now.requests["r"].state, now.asked["r"], now.orphans) == ("retrying", 2, 0)


def test_a_request_behind_one_that_does_not_fit_is_not_admitted() -> None:
    cache = driven(["enq h", "miss h", "admit h", "enq r", "miss r"], replace(WORLD, pool=5))
    assert answers(cache, "admit r") is Answer.REFUSED


def test_a_locked_path_is_not_evicted() -> None:
    world = World({"r": ("a", "b", "c")}, device=frozenset("ab"), storage=frozenset("c"))
    cache = driven(["enq r", "pin r"], world)
    assert answers(cache, "evict @a") is Answer.REFUSED
    assert answers(cache, "evict @b") is Answer.REFUSED
    assert answers(cache, "evict @c") is Answer.ABSENT


def test_a_hybrid_read_needs_the_auxiliary_page_of_its_end() -> None:
    world = replace(WORLD, layout="swa")
    cache = driven(["enq r", "hit r"], world)
    assert answers(cache, "done r") is Answer.REFUSED
    assert answers(driven(["store swa.c", "enq r", "hit r"], world), "done r") is Answer.DONE


def test_an_illegal_event_is_refused_and_changes_nothing() -> None:
    cache = driven(["enq r"])
    before = cache.observe()
    assert answers(cache, "done r") is Answer.REFUSED
    assert answers(cache, "enq r") is Answer.REFUSED
    assert answers(cache, "finish r") is Answer.REFUSED
    assert cache.observe() == before


@pytest.mark.parametrize("event", ["flush", "detach"])
@pytest.mark.parametrize(
    ("profile", "then"),
    [("recommended", Answer.DONE), ("sglang-0.5.23", Answer.REFUSED), ("seed", Answer.REFUSED)],
)
def test_upstream_refuses_a_reset_under_the_queue_36882(event: str, profile: str, then: Answer) -> None:
    assert answers(driven(["enq r"], profile=profile), event) is then
    assert answers(driven(["enq r", "miss r", "admit r", "finish r"], profile=profile), event) is Answer.DONE


@pytest.mark.parametrize(
    ("profile", "then"),
    [("recommended", Answer.DONE), ("sglang-0.5.23", Answer.DONE), ("seed", Answer.REFUSED)],
)
def test_a_flush_in_a_pause_ignores_who_only_waits_but_in_0_5_19_31962(profile: str, then: Answer) -> None:
    assert answers(driven(["enq r", "miss r", "pause"], profile=profile), "flush") is then
    if profile != "recommended":
        assert (
            answers(driven(["enq r", "hit r", "done r", "pause"], profile=profile), "flush") is Answer.REFUSED
        )


def test_a_retracted_request_leaves_its_prompt_on_the_device() -> None:
    now = after(["enq r", "miss r", "admit r", "retract r"])
    assert (now.requests["r"].state, now.asked["r"]) == ("queued", 1)


def test_in_cache_mode_a_question_that_is_out_counts_against_the_rate_limit() -> None:
    world = replace(WORLD, mode="cache", host=3)
    assert after(["enq r", "enq h"], world).asked == {"r": 1, "h": 0}
    assert after(["enq r", "miss r", "enq h"], world).asked == {"r": 1, "h": 1}


def test_settle_sees_everyone_through() -> None:
    now = after(["enq h", "enq r", "hit h", "write c", "cut r", "settle"])
    assert now.idle
    assert {view.state for view in now.requests.values()} == {"finished"}


def test_what_breaks_inside_the_lifecycle_is_passed_on() -> None:
    cache = RuntimeTarget().build(WORLD)
    cache.life.enqueue = None  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        cache.drive(parse("enq r"))


def test_a_world_that_makes_no_lifecycle_is_unsupported() -> None:
    with pytest.raises(UnsupportedError):
        target("runtime").build(replace(WORLD, context=0))


def test_ranks_take_in_what_all_of_them_have() -> None:
    cache = driven(["enq h", "enq r", "hit r rank=0", "tick"], replace(WORLD, ranks=2))
    assert cache.observe().requests["r"].state == "probing"
    for line in ("hit r rank=1", "tick"):
        cache.drive(parse(line))
    assert cache.observe().requests["r"].state == "transferring"
    assert answers(cache, "hit r rank=2") is Answer.INEXPRESSIBLE


def test_an_unknown_target_is_refused_with_those_there_are() -> None:
    for name in ("nobody", "sglang-9", "os:nothing", "no_such_module:make"):
        with pytest.raises(UnsupportedError):
            target(name)


def test_a_target_may_be_somebody_elses() -> None:
    assert target("hicache_fsm.suite.targets.runtime:RuntimeTarget").name == "runtime"


def test_slots_object_to_what_must_not_happen() -> None:
    slots = HostSlots(2)
    slots.take(("op", 1), 2)
    slots.give(("op", 1))
    assert slots.faults == ["conservation: op 1 freed a slot under I/O (#31668)"]
    slots.take(("op", 2), 3)
    assert "3 slots taken of 2 free" in slots.faults[-1]
    slots.move(("op", 2), ("hold", AttemptKey("r", 0)))
    assert "handed over a slot under I/O" in slots.faults[-1]


def test_a_tree_holds_a_page_only_below_its_parent() -> None:
    tree = DeviceTree([("a", "b", "c")], ["a"])
    assert tree.add(["c"]) == "c"
    assert tree.add(["b", "c"]) == ""
    assert tree.below("b") == ["c", "b"]
    assert tree.depth(("a", "b", "x")) == 2
