"""Bounds from the command line become a configuration, or one line that says what is wrong with them."""

import pytest

from hicache_fsm.explore import explore
from hicache_fsm.model import ModelError, system
from hicache_fsm.model.bounds import SPEAKS_OF, Wish, asked_for
from hicache_fsm.spec import load_spec

SPEC = load_spec()


@pytest.mark.parametrize(
    ("wish", "systems"),
    [
        (Wish(requests=3), ["admission"]),
        (Wish(interval=8), ["admission"]),
        (Wish(interval=0), ["admission-disabled"]),
        (Wish(requests=2, ranks=3, interval=8), ["admission", "ranks"]),
        (Wish(nodes=3), ["node"]),
        (Wish(trailing=1), ["belief"]),
        (Wish(), ["admission"]),
    ],
)
def test_the_bounds_say_which_systems_are_meant(wish: Wish, systems: list[str]) -> None:
    assert [each.system for each in asked_for(wish)] == systems


def test_a_shared_bound_goes_to_every_system_that_has_it() -> None:
    admission, ranks = asked_for(Wish(requests=2, ranks=2, interval=8))
    assert admission.constants["interval"] == ranks.constants["interval"] == 8


def test_a_system_can_be_named_for_a_bound_that_several_have() -> None:
    assert [each.system for each in asked_for(Wish(chain=2), ["belief"])] == ["belief"]
    assert [each.bounds["full"] for each in asked_for(Wish(pool=4), ["node"])] == [4]


@pytest.mark.parametrize("name", SPEAKS_OF)
def test_every_system_has_bounds_of_its_own_accord(name: str) -> None:
    (configuration,) = asked_for(Wish(), [name])
    assert explore(system(SPEC, "recommended", configuration)).violated == ()


@pytest.mark.parametrize(
    ("wish", "systems", "said"),
    [
        (Wish(requests=2), ["ranks"], "--requests: no such bound in ranks"),
        (Wish(requests=0), [], "--requests 0: from 1 to 58"),
        (Wish(host_pages=99), [], "--host-pages 99: from 0 to 58"),
        (Wish(requests=2, anchors=(1,)), [], "--anchors names 1 pins for 2 requests"),
        (Wish(anchors=(40, 40)), [], "--anchors: none below 0, 58 pages in all at most"),
        (Wish(nodes=3, pool=2), [], "--pool 2: the 3 nodes begin with a slot each"),
        (Wish(trailing=4), [], "--trailing 4: the chain has 3 pages"),
        (Wish(), ["nodes"], "unknown system nodes"),
    ],
)
def test_bounds_that_make_no_system_are_refused_with_the_option(
    wish: Wish, systems: list[str], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        asked_for(wish, systems)
