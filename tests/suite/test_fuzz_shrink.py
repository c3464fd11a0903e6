"""Shrinking alone: what stays is what the failure needs."""

import pytest

from hicache_fsm.suite.shrink import shrink


def test_only_the_elements_that_the_failure_needs_stay_and_in_order() -> None:
    needed = [3, 41, 77]
    small = shrink(range(100), lambda some: [each for each in some if each in needed] == needed)
    assert small == needed


def test_elements_that_only_leave_together_leave_together() -> None:
    def balanced(some: object) -> bool:
        counts = [list(some).count(each) for each in "()"]  # type: ignore[call-overload]
        return counts[0] == counts[1] > 0 or "!" in some  # type: ignore[operator]

    assert shrink("((((!))))", balanced) == ["!"]


def test_each_element_takes_the_simplest_form_that_still_fails() -> None:
    small = shrink([9, 8], lambda some: sum(some) >= 5, simpler=lambda each: range(each))
    assert small == [5]


def test_the_number_of_runs_is_bounded_and_what_is_left_still_fails() -> None:
    runs = 0

    def fails(some: object) -> bool:
        nonlocal runs
        runs += 1
        return 0 in some and 63 in some  # type: ignore[operator]

    small = shrink(range(64), fails, tries=5)
    assert runs == 5
    assert {0, 63} <= set(small)
    assert len(small) < 64


def test_a_sequence_that_does_not_fail_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink([1], lambda some: False)
