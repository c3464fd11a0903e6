"""Every report that the project knows is told by a scenario, or excused with a reason."""

import tomllib

from hicache_fsm.suite.scenario import collect, load, shipped

LISTED = """
#36227 #40011 #40042 #39283 #39318 #31398 #31402 #29620 #19320 #9643 #23309 #32724 #32725 #40361 #26449 #31887 #38634
#40008 #40043 #28422
#9874 #16369 #30053 #30325 #38704 #37103 #37102 #18705 #40360 #12693 #16067 #31668 #31445 #31296 #29310 #9601 #31962
#32153 #33784 #33783 dynamo#3730 LMCache#4512 LMCache#2786
#35931 #34975 #35009 #36317 #34519 #27444 #26728 #31427 #20049 #20560 #38504 #40394 #27108 #31715 #36834 #37464 #36738
#39395 #33862 #27586 #27789 #34823 LMCache#2004
#27024 #35537 #14872 #26991 vllm#44294
#30760 #33029 #26921 #26923 #28429 #27489 #27550 #36425 #39147 #39267 #31679
#36386 #38428 #38427 #36882 #39444 #38348 #26448 #27291 #36382 #31902 #30106 #36647 #33714 #26886 #29204 #28468 #40680
#40712 Mooncake#3599
#31765 #22273 #22790 #21875 vllm#46014 vllm#49118 vllm#49889
"""
"""The reports on HiCache's lifecycles, and on those of other engines, that were read for this project."""


def told() -> set[str]:
    return {report for path in collect([shipped()]) for report in load(path).upstream}


def excused() -> dict[str, str]:
    table = tomllib.loads((shipped() / "out-of-scope.toml").read_text(encoding="utf-8"))
    return {report: each["why"] for each in table["reports"] for report in each["upstream"]}


def test_every_report_is_told_or_excused() -> None:
    assert set(LISTED.split()) <= told() | excused().keys()


def test_no_report_is_both_told_and_excused() -> None:
    assert not told() & excused().keys()


def test_an_excuse_has_its_reason() -> None:
    assert all(len(why.split()) > 4 for why in excused().values())


def test_more_than_forty_five_scenarios_tell_a_report() -> None:
    assert sum(bool(load(path).upstream) for path in collect([shipped()])) >= 45


def test_every_scenario_says_what_it_asks_for() -> None:
    """A sequence whose every event may come out as it likes passes on anything that does not crash."""
    for path in collect([shipped()]):
        steps = load(path).steps
        assert any(step.kind != "event" or not step.optional for step in steps), path.stem
