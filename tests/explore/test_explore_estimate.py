"""What a search will need, told before it starts."""

import pytest

from hicache_fsm.explore import TooLargeError, estimate, explore
from hicache_fsm.explore.estimate import available_memory, exceeds_memory, state_bound
from hicache_fsm.model import system
from hicache_fsm.spec import load_spec

SPEC = load_spec()


def test_a_system_smaller_than_the_probe_is_known_exactly() -> None:
    found = estimate(system(SPEC, "recommended", "node.three"))
    assert (found.states, found.exact) == (305, True)
    assert found.states <= found.bound


@pytest.mark.parametrize(("name", "distinct"), [("admission.scarce", 35755), ("admission.retracted", 83649)])
def test_a_probe_is_right_within_a_factor_of_four(name: str, distinct: int) -> None:
    found = estimate(system(SPEC, "recommended", name), probe=distinct // 8)
    assert not found.exact
    assert distinct / 4 < found.states < distinct * 4


def test_states_beyond_memory_are_refused_before_the_search() -> None:
    built = system(SPEC, "recommended", "admission.retracted")
    with pytest.raises(TooLargeError, match=r"admission.retracted: about [\d,]+ states expected, .* GiB"):
        explore(built, memory=1 << 16)


def test_bounds_that_allow_more_than_are_expected_pass() -> None:
    built = system(SPEC, "recommended", "node.three")
    assert state_bound(built) * 16 > 1 << 20
    assert exceeds_memory(built, 10**12, True, memory=1 << 20) is None


def test_the_machine_says_what_memory_it_has() -> None:
    assert (available_memory() or 1) > 0


def test_few_bytes_a_state_are_kept() -> None:
    result = explore(system(SPEC, "recommended", "admission.retracted"))
    assert result.engine == "numpy" or result.bytes_per_state <= 16
