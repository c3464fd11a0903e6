"""Which check notices a mutant, and that the book of equivalents stays honest."""

from pathlib import Path

import pytest

from hicache_fsm.spec import load_spec
from hicache_fsm.spec.validate import validate_machine

pytest.importorskip("z3")

from hicache_fsm.mutate import MutationReport, load_equivalents, mutate
from hicache_fsm.mutate.mutants import entries, mutants

SPEC = load_spec()
ALL = {mutant.name: mutant for mutant in mutants(SPEC)}

SAMPLE = {
    "pin: drop fits of pin [anchored, fits] from unpinned, capped": "validation",
    "prefetch: drop row admit from loaded": "search",
    "prefetch: drop effect lower_marker of sweep [!head_exempt, !immediate, budget_left, paces] from missed": "search",
    "pin: drop row pin [anchored, fits] from capped": "conformance",
    "belief: drop effect settle_write of write_failed [!believes_failed] from writing": "conformance",
    "node: drop effect unclaim of loaded [owner] from loading": "validation",
    "recommended: set headroom_slack to 0": "conformance",
    "recommended: set leaky_door to True": "search",
    "seed: set arms_too_short to False": "conformance",
}
"""Mutants of every kind, with the check that notices first."""


@pytest.fixture(scope="module")
def sample() -> MutationReport:
    argued = {
        "pin: drop row pin from pinned": "an argument that holds",
        "node: no such change": "a stale one",
    }
    argued["recommended: set leaky_door to True"] = "another stale one: a check kills it"
    names = {*SAMPLE, "pin: drop row pin from pinned"}
    return mutate(SPEC, chosen=lambda mutant: mutant.name in names, argued=argued)


def test_every_row_literal_effect_destination_and_constant_has_a_mutant() -> None:
    for machine in SPEC.machines.values():
        own = [name for name in ALL if name.startswith(f"{machine.name}: ")]
        groups = entries(machine.transitions)
        literals = sum(len(entry[0].guard) for entry in groups)
        effects = sum(len(entry[0].effects) for entry in groups)
        assert len(own) == len(machine.transitions) + 2 * literals + effects + len(groups)
    for profile in SPEC.profiles:
        changed = {name.split()[2] for name in ALL if name.startswith(f"{profile}: ")}
        assert changed == set(SPEC.profiles[profile].constants.__slots__)


def test_a_mutant_differs_from_the_spec_in_one_place() -> None:
    assert all(mutant.spec != SPEC for mutant in ALL.values())
    assert len(ALL) == len(list(mutants(SPEC)))


def test_the_spec_itself_is_left_alone() -> None:
    assert load_spec() == SPEC
    assert not any(validate_machine(machine) for machine in SPEC.machines.values())


@pytest.mark.slow
def test_the_sample_dies_by_the_expected_checks(sample: MutationReport) -> None:
    killed = {fate.name: fate.kill.check if fate.kill else None for fate in sample.fates}
    assert killed == {**SAMPLE, "pin: drop row pin from pinned": None}


@pytest.mark.slow
def test_an_argued_mutant_is_no_survivor_and_a_stale_argument_fails(sample: MutationReport) -> None:
    assert sample.survivors == []
    assert sample.score == 1
    assert set(sample.stale) == {"node: no such change", "recommended: set leaky_door to True"}
    assert sample.exit_code == 1


@pytest.mark.slow
def test_a_survivor_that_nobody_argued_lowers_the_score() -> None:
    name = "belief: drop row reset from unknown"
    report = mutate(SPEC, chosen=lambda mutant: mutant.name == name, argued={})
    assert [fate.name for fate in report.survivors] == [name]
    assert report.score == 0
    assert report.exit_code == 1


def test_every_shipped_argument_is_about_a_mutant() -> None:
    assert load_equivalents().keys() <= ALL.keys()


@pytest.mark.parametrize("why", ['""', '"two\\nlines"', "3"])
def test_an_argument_is_one_line(tmp_path: Path, why: str) -> None:
    file = tmp_path / "equivalent.toml"
    file.write_text(f'[pin]\n"drop row pin from pinned" = {why}\n')
    with pytest.raises(ValueError, match="in one line"):
        load_equivalents(file)
