"""What holds under which profile, and that every check can fail."""

import pytest

from hicache_fsm.explore import Result, check_profile, explore, untaken
from hicache_fsm.model import configurations, load_configurations, system
from hicache_fsm.spec import load_spec
from hicache_fsm.spec.mutate import apply_witness, set_constant
from hicache_fsm.spec.types import Witness

SPEC = load_spec()

NEVER_TAKEN = {
    (
        "node",
        "load",
        "loading",
        "[unclaimed]",
    ): "a loading node is claimed; the guard is what keeps a second claim off",
    ("pin", "pin", "capped", "[!anchored]"): "the eviction of the anchor has already made the pin lost",
    (
        "prefetch",
        "lose_match",
        "pending",
        "[!budget_left]",
    ): "a wait starts with budget left, and spends none",
}
"""Rows that no default configuration takes, with the reason."""


@pytest.fixture(scope="module")
def results() -> dict[str, list[Result]]:
    return {profile: check_profile(SPEC, profile) for profile in SPEC.profiles}


COUNTS = {
    "admission.pair": (19794, 18, 170098),
    "admission.alone": (12625, 22, 95804),
    "admission-disabled.interval": (1907, 16, 12408),
    "belief.chain": (15552, 18, 218291),
    "node.two": (47, 4, 190),
    "node.three": (305, 6, 1767),
    "ranks.two": (27, 13, 49),
}
"""Distinct states, depth and edges under `recommended`, which every other reading of a system must find."""


def violated(results: list[Result]) -> set[str]:
    return {invariant for result in results for invariant in result.violated}


@pytest.mark.slow
def test_every_invariant_holds_under_the_recommended_profile(results: dict[str, list[Result]]) -> None:
    verdicts = [verdict for result in results["recommended"] for verdict in result.verdicts.values()]
    assert {verdict.outcome for verdict in verdicts} == {"HELD"}
    assert {verdict.invariant for verdict in verdicts} == set(SPEC.invariants)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["seed", "sglang-0.5.23"])
def test_upstream_violates_exactly_its_pinned_findings(
    results: dict[str, list[Result]], profile: str
) -> None:
    pinned = [finding for finding in SPEC.profiles[profile].findings if finding.shown_by == "search"]
    assert violated(results[profile]) == {finding.invariant for finding in pinned}


@pytest.mark.slow
def test_every_row_is_taken_or_has_a_reason_not_to_be(results: dict[str, list[Result]]) -> None:
    rows = untaken(SPEC, [result for each in results.values() for result in each])
    assert {
        (machine, row.event, row.source, f"[{', '.join(map(str, row.guard))}]") for machine, row in rows
    } == set(NEVER_TAKEN)


@pytest.mark.parametrize("name", COUNTS)
def test_a_system_has_its_pinned_size(name: str) -> None:
    result = explore(system(SPEC, "recommended", name))
    assert (result.distinct, result.depth, result.edges) == COUNTS[name]


@pytest.mark.parametrize("invariant", SPEC.invariants)
def test_the_witness_of_an_invariant_violates_it(invariant: str) -> None:
    claim = SPEC.invariants[invariant]
    mutant = apply_witness(SPEC, claim.witness)
    name = next(n for n in configurations() if load_configurations()[n].system in claim.systems)
    result = explore(system(mutant, "recommended", name), until=[invariant])
    verdict = result.verdicts[invariant]
    assert verdict.outcome == "VIOLATED"
    assert verdict.trace is not None
    assert len(verdict.trace) <= 5


HIDDEN = {
    "a question that is not charged": ("prefetch", "lose_match", "spend", "attempts-bounded"),
    "a hold that a flush leaves": ("prefetch", "flush", "release_hold", "no-residue"),
    "a pin that a detach leaves": ("prefetch", "detach", "unpin", "no-residue"),
    "a pin that a miss leaves": ("prefetch", "miss", "unpin", "pin-owned"),
    "an answered question that stays alive": ("prefetch", "miss", "end_operation", "one-in-flight"),
    "a pin that is not counted": ("pin", "pin", "lock_anchor", "pin-owned"),
    "a pin that stays counted": ("pin", "unpin", "unlock_anchor", "pin-owned"),
    "pages freed twice": ("prefetch", "done", "stage_hold", "conservation"),
    "a holder that is not counted": ("node", "pin", "count_holder", "conservation"),
    "a claim that outlives its load-back": ("node", "loaded", "unclaim", "load-exclusive"),
}


@pytest.mark.parametrize("fault", HIDDEN)
def test_a_dropped_effect_is_noticed(fault: str) -> None:
    machine, event, name, invariant = HIDDEN[fault]
    mutant = apply_witness(SPEC, Witness("drop", "effect", machine=machine, event=event, name=name))
    where = "node.two" if machine == "node" else "admission.pair"
    assert invariant in explore(system(mutant, "recommended", where), until=[invariant]).violated


def test_pages_freed_under_a_read_are_noticed() -> None:
    swap = Witness(
        "swap", "effect", machine="prefetch", event="abort", name="orphan_operation", value="free_pages"
    )
    result = explore(
        system(apply_witness(SPEC, swap), "recommended", "admission.pair"), until=["conservation"]
    )
    assert "conservation" in result.violated


def test_a_stronger_cap_than_upstreams_is_what_keeps_the_head_admissible() -> None:
    spec = set_constant(SPEC, "sglang-0.5.23", leaky_door=False)
    assert "headroom" in explore(system(spec, "sglang-0.5.23", "admission.pair")).violated
    spec = set_constant(spec, "sglang-0.5.23", headroom_slack=1)
    assert "headroom" not in explore(system(spec, "sglang-0.5.23", "admission.pair")).violated


def test_holders_of_a_part_that_ask_for_the_rest_do_not_starve_each_other() -> None:
    """Hold and wait, if the holder of a part could park."""
    assert explore(system(SPEC, "recommended", "admission.starved")).violated == ()


@pytest.mark.slow
def test_every_invariant_holds_for_three_requests() -> None:
    result = explore(system(SPEC, "recommended", "admission.three"))
    assert {verdict.outcome for verdict in result.verdicts.values()} == {"HELD"}


def test_ranks_that_drain_their_own_answers_fall_out_of_step() -> None:
    spec = set_constant(SPEC, "recommended", agreed_drains=False)
    assert explore(system(spec, "recommended", "ranks.two")).violated == ("lockstep",)
