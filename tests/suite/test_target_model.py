"""The model as a target: it goes the runtime's way where it has a step, and says so where it has none."""

import pytest

from hicache_fsm.suite.language import parse
from hicache_fsm.suite.protocol import Answer, RequestView, UnsupportedError, World
from hicache_fsm.suite.targets import target

WORLD = World({"h": ("a", "b", "c"), "r": ("a", "b", "c")}, device=frozenset("a"), storage=frozenset("bc"))

LINES = (
    "enq h", "enq r", "hit h", "done h", "hit r", "xfer r 1", "cut r 1", "admit h", "ack h", "done r q=1",
    "admit r", "ack r", "finish h", "finish r",
)  # fmt: skip


def same(one: RequestView, other: RequestView) -> bool:
    """Whether both show the same, but for what the model has no variable for."""
    names = ("attempt", "marker", "spent", "question", "pages", "hold", "pinned")
    over = ("finished", "aborted")
    agree = one.state == other.state or (one.state in over and other.state in over)
    return agree and all(getattr(one, name) == getattr(other, name) for name in names)


@pytest.mark.parametrize("profile", ["recommended", "seed", "sglang-0.5.23"])
def test_model_and_runtime_go_the_same_way(profile: str) -> None:
    model, runtime = target("model", profile).build(WORLD), target("runtime", profile).build(WORLD)
    for line in LINES:
        replies = [cache.drive(parse(line)).answer for cache in (model, runtime)]
        assert replies[0] == replies[1], line
        here, there = model.observe(), runtime.observe()
        for rid in WORLD.prompts:
            assert same(here.requests[rid], there.requests[rid]), (line, here.requests, there.requests)
        assert (here.pinned, here.occupied, here.host_free) == (
            there.pinned,
            there.occupied,
            there.host_free,
        ), line
        assert here.asked == there.asked, line


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("split @a", "no split"),
        ("limit 3", "no limit"),
        ("hit r 1", "a part of what it has"),
        ("insert b", "no page"),
    ],
)
def test_what_the_model_has_no_step_for_is_inexpressible(line: str, says: str) -> None:
    cache = target("model").build(WORLD)
    cache.drive(parse("enq r"))
    reply = cache.drive(parse(line))
    assert reply.answer is Answer.INEXPRESSIBLE
    assert says in reply.why


@pytest.mark.parametrize(
    "world",
    [
        World({"r": ("a",), "s": ("b",)}),
        World({"r": ("a",)}, ranks=2),
        World({"r": ("a",)}, mode="cache"),
        World({"r": ("a",)}, device=frozenset("a")),
        World(dict.fromkeys("rstu", ("a",))),
    ],
)
def test_a_world_that_the_model_cannot_have_is_unsupported(world: World) -> None:
    with pytest.raises(UnsupportedError):
        target("model").build(world)


def test_a_second_life_of_an_id_is_inexpressible() -> None:
    cache = target("model").build(WORLD)
    for line in ("enq r", "abort r"):
        cache.drive(parse(line))
    assert cache.drive(parse("enq r")).answer is Answer.INEXPRESSIBLE


def test_beliefs_follow_writes_and_their_answers() -> None:
    cache = target("model").build(World({"r": ("a", "b")}))
    for line in ("write a, b", "wack a", "wack b ok=no"):
        assert cache.drive(parse(line)).answer is Answer.DONE
    assert cache.observe().believed == {"a"}
    assert cache.drive(parse("write a")).answer is Answer.REFUSED
    assert cache.drive(parse("write b")).answer is Answer.DONE


def test_settle_sees_everyone_through() -> None:
    cache = target("model").build(WORLD)
    for line in ("enq h", "enq r", "settle"):
        cache.drive(parse(line))
    now = cache.observe()
    assert now.idle
    assert {view.state for view in now.requests.values()} == {"finished"}
