"""What `check` concludes from its searches and logs."""

from dataclasses import replace

import pytest

from hicache_fsm import check
from hicache_fsm.check import ProfileReport, Report, Standing, run_check, standing
from hicache_fsm.explore import Result, explore
from hicache_fsm.model import system
from hicache_fsm.spec import Spec, load_spec, set_constant

SMALL = "admission-disabled.interval"


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec()


def searched(spec: Spec, profile: str, max_states: int = 1_000_000) -> Result:
    return explore(system(spec, profile, SMALL), max_states=max_states)


def test_an_invariant_that_every_search_holds_is_held(spec: Spec) -> None:
    found = standing(
        spec.profiles["recommended"], spec.invariants["disabled-inert"], [searched(spec, "recommended")]
    )
    assert found.verdict == "held"


def test_a_violation_that_the_profile_pins_is_an_upstream_finding(spec: Spec) -> None:
    found = standing(spec.profiles["seed"], spec.invariants["disabled-inert"], [searched(spec, "seed")])
    assert (found.verdict, found.passes) == ("upstream finding", True)


def test_a_violation_that_nobody_pinned_is_violated_with_its_trace(spec: Spec) -> None:
    planted = set_constant(spec, "recommended", marks_when_disabled=True)
    found = standing(
        planted.profiles["recommended"], spec.invariants["disabled-inert"], [searched(planted, "recommended")]
    )
    assert (found.verdict, found.passes) == ("violated", False)
    assert found.trace is not None


def test_a_pinned_finding_that_no_search_shows_any_more_does_not_pass(spec: Spec) -> None:
    mended = set_constant(spec, "seed", marks_when_disabled=False)
    found = standing(mended.profiles["seed"], spec.invariants["disabled-inert"], [searched(mended, "seed")])
    assert (found.verdict, found.passes) == ("finding gone", False)


def test_a_search_that_hit_its_bound_is_undetermined_and_never_a_pass(spec: Spec) -> None:
    cut = searched(spec, "recommended", max_states=100)
    found = standing(spec.profiles["recommended"], spec.invariants["disabled-inert"], [cut])
    assert (found.verdict, found.passes) == ("undetermined", False)


def test_an_invariant_that_nothing_searched_does_not_pass(spec: Spec) -> None:
    assert not standing(spec.profiles["recommended"], spec.invariants["disabled-inert"], []).passes


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("held", 0), ("violated", 1), ("finding gone", 1), ("undetermined", 3), ("not searched", 3)],
)
def test_the_exit_code_says_what_the_worst_standing_says(spec: Spec, verdict: str, code: int) -> None:
    held = Standing("paced", "held")
    one = ProfileReport("recommended", (), (held, replace(held, verdict=verdict)))  # type: ignore[arg-type]
    assert Report("", (one,), ()).exit_code == code


def test_a_violation_that_nobody_pinned_is_explained(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "configurations", lambda: [SMALL])
    planted = set_constant(spec, "recommended", marks_when_disabled=True)
    report = run_check(planted, ["recommended"], max_states=1_000_000)
    found = next(each for each in report.profiles[0].standings if each.verdict == "violated")
    assert found.explained is not None
    assert [*found.explained.rows][-1][3] == "r0.marker for what fails"
    told = report.as_json()["profiles"][0]["invariants"]["disabled-inert"]
    assert told["explained"]["code"]


@pytest.mark.slow
def test_check_holds_on_the_shipped_spec_and_logs(spec: Spec) -> None:
    report = run_check(spec, list(spec.profiles), max_states=20_000_000)
    assert report.exit_code == 0, report.as_json()
    assert {verdict.version for verdict in report.logs} == {"0.5.19", "0.5.23"}
