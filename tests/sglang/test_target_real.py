"""The gated target on the installed SGLang: each completion lands when its event is driven, and not before."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
from sglang_support import VERSIONS, Driven

from hicache_fsm.suite.language import parse
from hicache_fsm.suite.protocol import Answer, World
from hicache_fsm.suite.targets.sglang import EngineError, SglangCache, SglangTarget

pytestmark = pytest.mark.sglang
Drive = Callable[..., Driven]

STORED = frozenset("ab")
TWO = World(prompts={"r": ("a", "b", "c"), "s": ("a", "b", "d")}, storage=STORED)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_prefetch_goes_from_question_to_acknowledgement_as_told(drive: Drive, version: str) -> None:
    seen = drive(
        version,
        TWO,
        [
            "enq r",
            "issue r",
            "hit r",
            "done r",
            "stage r",
            "admit r",
            "consume r",
            "ack r",
            "finish r",
            "settle",
        ],
    )
    assert [str(answer) for answer in seen.answers] == [
        *("done", "seen", "done", "done", "seen", "done", "seen", "done", "done", "done")
    ]
    assert seen.states("r") == [
        *("probing", "probing", "transferring", "loaded", "loaded", "running", "running", "running"),
        *("finished", "finished"),
    ]
    assert [one.occupied for one in seen.observed] == [0, 0, 2, 2, 2, 2, 2, 0, 0, 0]
    assert seen.last.idle


@pytest.mark.parametrize("version", VERSIONS)
def test_passes_change_nothing_while_storage_owes_its_answer(drive: Drive, version: str) -> None:
    seen = drive(
        version, TWO, ["enq r", "tick 20", "!admit r", "hit r", "tick 20", "!admit r", "xfer r 1", "tick 20"]
    )
    assert seen.states("r") == ["probing"] * 3 + ["transferring"] * 5
    assert seen.last.now == 62


def test_pages_arrive_one_by_one_and_a_read_may_stop_half_way(drive: Drive) -> None:
    seen = drive("0.5.23", TWO, ["enq r", "hit r", "xfer r 1", "done r 1"])
    assert seen.last.requests["r"].hold == 1
    assert seen.last.host_free == 15


def test_storage_answers_in_any_order_or_only_in_that_of_asking(drive: Drive) -> None:
    steps = ["enq r", "enq s", "miss s", "miss r"]
    assert drive("0.5.23", TWO, steps).states("s")[2] == "missed"
    seen = drive("0.5.23", TWO, steps, in_order=True)
    assert seen.answers[2:] == [Answer.INEXPRESSIBLE, Answer.DONE]
    assert seen.whys[2] == "one thread serves in the order of asking: r is before it"


def test_a_hit_that_is_denied_room_is_parked_until_it_is_given_it(drive: Drive) -> None:
    seen = drive("0.5.23", TWO, ["enq r", "hit r room=no why=host_capacity", "park r", "tick 5", "alloc r"])
    assert seen.states("r") == ["probing", "parked", "parked", "parked", "transferring"]


def test_a_late_answer_can_be_named(drive: Drive) -> None:
    seen = drive("0.5.23", TWO, ["enq r", "abort r", "tick", "miss r q=1", "miss r q=1"])
    assert [one.orphans for one in seen.observed] == [0, 1, 1, 0, 0]
    assert seen.answers[-1] is Answer.ABSENT


def test_a_write_is_acknowledged_when_told_and_may_fail(drive: Drive) -> None:
    seen = drive(
        "0.5.23", World(prompts={"r": ("a", "b")}), ["write a, b", "tick 9", "wack a, b ok=no", "wack a"]
    )
    assert [len(one.stored) for one in seen.observed] == [0, 0, 0, 0]
    assert seen.answers == [Answer.DONE, Answer.DONE, Answer.DONE, Answer.ABSENT]


def test_a_node_is_evicted_alone_with_what_hangs_below_it(drive: Drive) -> None:
    world = World(
        prompts={"r": ("a", "b", "c"), "s": ("a", "d")}, storage=frozenset("abcd"), device=frozenset("abcd")
    )
    seen = drive("0.5.23", world, ["evict @b", "enq r", "enq s"])
    assert seen.last.requests["r"].base == 1
    assert seen.last.asked == {"r": 1}, "all of s is on the device"


def test_a_node_that_is_locked_stays_and_so_does_everybody_else(drive: Drive) -> None:
    world = World(
        prompts={"r": ("a", "b", "c"), "s": ("d", "e")}, storage=frozenset("c"), device=frozenset("abde")
    )
    seen = drive("0.5.23", world, ["enq r", "hit r", "pin r", "evict @b", "enq s"])
    assert seen.answers[3] is Answer.REFUSED
    assert seen.last.asked == {"r": 1}, "all of s is on the device"


@pytest.mark.parametrize(("policy", "word"), [("best_effort", "cut r"), ("timeout", "expire r")])
def test_a_wait_ends_by_the_policy_when_told(drive: Drive, policy: str, word: str) -> None:
    world = World(prompts={"r": ("a", "b"), "s": ("c", "d")}, policy=policy)
    seen = drive("0.5.23", world, ["enq s", "enq r", "tick 3", word, "admit r"])
    assert seen.states("r")[2:] == [
        "probing",
        "missed" if policy == "best_effort" else "exhausted",
        "running",
    ]
    assert seen.states("s")[-1] == "probing", "the scan looked at nobody else"


@pytest.mark.parametrize("why", ["client", "queue_limit", "timeout"])
def test_a_queued_request_leaves_by_each_door_and_leaves_nothing(drive: Drive, why: str) -> None:
    seen = drive("0.5.23", TWO, ["enq r", "hit r", "done r", f"abort r why={why}"])
    assert seen.states("r")[-1] == "aborted"
    assert (seen.last.occupied, seen.last.host_free) == (0, 16)


@pytest.mark.parametrize("why", ["retracted", "preempted", "paused"])
def test_a_running_request_goes_back_to_the_queue(drive: Drive, why: str) -> None:
    seen = drive("0.5.23", TWO, ["enq r", "miss r", "admit r", f"retract r why={why}", "settle"])
    assert seen.last.requests["r"].attempt == 1
    assert seen.states("r")[-1] == "finished"


def test_what_a_dense_engine_of_one_rank_has_not_is_said(drive: Drive) -> None:
    seen = drive("0.5.23", TWO, ["tombstone @a", "load @a by=r", "enq r", "discard r"])
    assert [one for one in seen.answers if one is Answer.INEXPRESSIBLE] == [Answer.INEXPRESSIBLE] * 3


def test_a_world_starts_like_the_first_and_in_a_moment(targets: Callable[..., SglangTarget]) -> None:
    target = targets("0.5.23")
    script = ["enq r", "enq s", "hit r", "xfer r 1", "tick 2", "insert d", "pause"]
    shown, took = set(), []
    for _ in range(12):
        start = time.perf_counter()
        cache = target.build(TWO)
        took.append(time.perf_counter() - start)
        before = repr(cache.observe())
        for line in script:
            cache.drive(parse(line))
        shown.add((before, repr(cache.observe())))
        cache.close()
    assert len(shown) == 1
    assert statistics.median(took[1:]) < 0.05


def until_it_ends(cache: SglangCache) -> None:
    """Ask an engine until nobody answers: the kernel may take a moment to end it."""
    for _ in range(100_000):
        cache.observe()


@pytest.mark.slow
def test_an_engine_whose_process_dies_is_replaced(targets: Callable[..., SglangTarget]) -> None:
    target = targets("0.5.23")
    cache = target.build(TWO)
    process = target._children["buffer_only"]._process
    assert process is not None
    process.kill()
    process.wait()
    with pytest.raises(EngineError, match=r"the process of sglang 0\.5\.23 has ended"):
        until_it_ends(cache)
    cache.close()
    again = target.build(TWO)
    assert again.observe().now == 0
    again.close()
