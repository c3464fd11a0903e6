"""Places in SGLang that look like holes, each driven on the installed versions: it is one, or it is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sglang_support import SINCE_0520, VERSIONS, Driven

from hicache_fsm.suite.protocol import Answer, Event, World

pytestmark = pytest.mark.sglang
Drive = Callable[..., Driven]

HOLDERS = {"r": ("a", "b", "x"), "s": ("c", "d", "y")}
WEDGE = ["enq big", "miss big", "enq r", "hit r", "done r", "enq s", "hit s", "done s", "admit big", "settle"]
HELD = ["enq r", "hit r", "xfer r 1", "abort r"]
"""An aborted read that storage still holds."""
WAITS_FOR_EVER = "SettleError: upstream waits without a limit for a thread that storage holds"
ENDS = "RuntimeError: Failed to stop HiCache storage threads cleanly."


def wedge(pages: str, context: int) -> World:
    """Two holders who pin two pages each, behind a head of so many pages; retries are off."""
    return World(
        prompts={"big": tuple(pages), **HOLDERS},
        device=frozenset("abcd"),
        storage=frozenset("xy"),
        pool=8,
        context=context,
        interval=0,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_pins_at_upstreams_cap_keep_the_largest_request_out_of_an_idle_engine_37464(
    drive: Drive, version: str
) -> None:
    seen = drive(
        version, wedge("mnop", context=4), [*WEDGE, "settle", "abort r", "abort s", "settle"], in_order=True
    )
    assert seen.whys[8] == "the scan said NO_TOKEN"
    assert (seen.observed[10].pinned, seen.observed[10].pin_cap) == (4, 4)
    assert seen.states("big")[9:11] == ["queued", "queued"], "128 passes of an engine that runs nothing"
    assert seen.states("big")[-1] == "finished", "it fits the pool once the holders are gone"


@pytest.mark.parametrize("version", SINCE_0520)
def test_pins_at_the_machines_cap_let_it_in(drive: Drive, version: str) -> None:
    seen = drive(version, wedge("mnop", context=4), WEDGE, in_order=True, machine_pins=True)
    assert seen.states("big")[-1] == "finished"
    assert max(one.pinned for one in seen.observed) == 2


@pytest.mark.parametrize("version", SINCE_0520)
def test_pins_of_an_engine_that_was_not_told_its_context_length_keep_out_what_fits_the_pool_37464(
    drive: Drive, version: str
) -> None:
    seen = drive(version, wedge("mnopqt", context=0), WEDGE, in_order=True)
    assert (seen.last.pinned, seen.states("big")[-1]) == (4, "queued")
    control = drive(version, wedge("mnopqt", context=0), ["enq big", "miss big", "admit big", "settle"])
    assert control.states("big")[-1] == "finished"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_diffusion_models_admission_leaves_hold_pin_and_charge(drive: Drive, version: str) -> None:
    world = World(prompts={"r": ("a", "b", "x")}, device=frozenset("ab"), storage=frozenset("x"))
    seen = drive(version, world, ["enq r", "hit r", "done r", Event("diffuse", ("r",)), "settle"])
    assert seen.answers[3] is Answer.DONE
    view = seen.last.requests["r"]
    assert (view.hold, view.pinned, seen.last.occupied) == (1, 2, 1)


@pytest.mark.parametrize("version", SINCE_0520)
def test_a_question_of_a_decode_server_that_raises_leaves_its_anchor_locked(
    drive: Drive, version: str
) -> None:
    world = World(prompts={"r": ("a", "b")}, mode="cache", storage=frozenset("ab"))
    only_on_the_host = ["write a", "wack a", "evict @a", "store b"]
    raised = drive(version, world, [*only_on_the_host, Event("interrupt", ("r",)), Event("reclaim")])
    assert raised.replies[-2].answer is Answer.DONE
    assert raised.whys[-1] == "0", "its host page can never be reclaimed"
    control = drive(version, world, [*only_on_the_host, "enq r", "miss r", "abort r", Event("reclaim")])
    assert control.whys[-1] == "1"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_flush_while_storage_holds_an_aborted_read_ends_the_engine_or_stops_it(
    drive: Drive, version: str
) -> None:
    world = World(prompts={"r": ("a", "b")}, storage=frozenset("ab"))
    assert drive(version, world, [*HELD, "flush"]).answers[-1] is Answer.DONE, "storage answers in time"
    seen = drive(version, world, [*HELD, "flush"], stuck=True)
    waits = version in ("0.5.19", "0.5.20")
    assert seen.whys[-1] == f"the engine raised {WAITS_FOR_EVER if waits else ENDS}"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_id_that_comes_again_is_credited_with_what_its_aborted_predecessor_loaded_on_0520_alone(
    drive: Drive, version: str
) -> None:
    world = World(prompts={"r": ("a", "b")}, storage=frozenset("ab"))
    seen = drive(version, world, ["enq r", "hit r", "done r", "abort r", "settle", "enq r"])
    assert seen.answers == [Answer.DONE] * 6
    assert seen.last.requests["r"].loaded == (2 if version == "0.5.20" else 0)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_detach_that_is_refused_leaves_an_engine_that_asks_and_nobody_answers(
    drive: Drive, version: str
) -> None:
    world = World(prompts={"r": ("a", "b"), "s": ("c", "d")}, storage=frozenset("abcd"))
    asked = [*HELD, "detach", "settle", "enq s", "hit s", "settle"]
    mended = ["abort s", "detach", "attach", "enq s", "admit s", "miss s", "admit s"]
    seen = drive(version, world, [*asked, *mended], stuck=True)
    assert seen.answers[4] is Answer.REFUSED
    assert seen.whys[7] == "the thread that would serve it has ended"
    assert seen.states("s")[8] == "probing"
    assert seen.states("s")[-1] == "running", "a second detach mends it"
    assert {one.host_free for one in seen.observed[8:]} == {15}, "a page of the aborted read never comes back"
