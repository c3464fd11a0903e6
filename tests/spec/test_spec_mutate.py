from pathlib import Path

import pytest

from hicache_fsm.spec import Spec, Witness, apply_witness, load_spec, set_constant
from hicache_fsm.spec.mutate import coerce_constant


@pytest.fixture(scope="module")
def real() -> Spec:
    """This project's own spec."""
    return load_spec()


@pytest.mark.parametrize("invariant", load_spec().invariants)
def test_the_witness_of_every_invariant_applies_and_leaves_the_original_alone(
    real: Spec, invariant: str
) -> None:
    mutated = apply_witness(real, real.invariants[invariant].witness)
    assert mutated != real
    assert real == load_spec()


def test_a_dropped_guard_leaves_the_rows_that_negate_it_alone(real: Spec) -> None:
    mutated = apply_witness(real, Witness("drop", "guard", "pin", "pin", "fits"))
    rows = [row for row in mutated.machines["pin"].rows("unpinned", "pin") if row.dest != "lost"]
    assert [[str(literal) for literal in row.guard] for row in rows] == [["anchored"], ["anchored", "!fits"]]


def test_a_negated_guard_is_dropped_by_its_negated_name_alone(small: Path) -> None:
    mutated = apply_witness(load_spec(small), Witness("drop", "guard", "lamp", "press", "!powered"))
    rows = mutated.machines["lamp"].rows("off", "press")
    assert [[str(literal) for literal in row.guard] for row in rows] == [["powered"], []]


def test_a_dropped_effect_leaves_every_row_of_the_event(small: Path) -> None:
    mutated = apply_witness(load_spec(small), Witness("drop", "effect", "lamp", "burn", "fade"))
    effects = {(row.event, row.source): row.effects for row in mutated.machines["lamp"].transitions}
    assert effects["burn", "off"] == effects["burn", "on"] == ()
    assert effects["press", "on"] == ("fade",)


def test_a_dropped_transition_may_be_narrowed_by_source_and_destination(small: Path) -> None:
    spec = load_spec(small)
    mutated = apply_witness(spec, Witness("drop", "transition", "lamp", "press", source="off", dest="on"))
    assert [row.row for row in mutated.machines["lamp"].transitions] == [1, 2, 3, 4]
    mutated = apply_witness(spec, Witness("drop", "transition", "lamp", "burn"))
    assert [row.row for row in mutated.machines["lamp"].transitions] == [0, 1, 2]


def test_a_swapped_effect_takes_the_other_ones_place(small: Path) -> None:
    witness = Witness("swap", "effect", "lamp", "burn", "fade", source="on", value="shine")
    lamp = apply_witness(load_spec(small), witness).machines["lamp"]
    assert [row.effects for row in lamp.transitions if row.event == "burn"] == [("fade",), ("shine",)]


@pytest.mark.parametrize(
    ("witness", "reason"),
    [
        (Witness("drop", "effect", "lmp", "burn", "fade"), 'unknown machine "lmp"; did you mean "lamp"?'),
        (
            Witness("drop", "effect", "lamp", "burn", "shine"),
            "drop effect shine of lamp.burn.* matches nothing",
        ),
        (Witness("drop", "transition", "lamp", "burn", source="dead"), "matches nothing"),
        (Witness("drop", "guard", "lamp", "burn", "powered"), "matches nothing"),
        (
            Witness("swap", "effect", "lamp", "burn", "fade", value="fad"),
            'unknown effect "fad"; did you mean "fade"',
        ),
        (Witness("swap", "guard", "lamp", "burn", "powered", value="fade"), "no such change"),
        (Witness("drop", "state", "lamp", "burn"), "no such change"),
        (Witness("set", "interva", value=3), 'unknown constant "interva"; did you mean "interval"'),
        (Witness("set", "interval", value="3"), "interval is an integer, not '3'"),
    ],
)
def test_a_witness_that_matches_nothing_is_refused_with_the_reason(
    small: Path, witness: Witness, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason.replace("?", r"\?")):
        apply_witness(load_spec(small), witness)


def test_a_set_witness_changes_the_profile_that_is_asked_for(real: Spec) -> None:
    mutated = apply_witness(real, Witness("set", "scope", value="rid"), profile="recommended")
    assert mutated.profiles["recommended"].constants.scope == "rid"
    assert all(
        mutated.profiles[name] == real.profiles[name] for name in real.profiles if name != "recommended"
    )


def test_constants_are_set_together(real: Spec) -> None:
    constants = set_constant(real, "seed", interval=4, pin_fraction=1).profiles["seed"].constants
    assert (constants.interval, constants.pin_fraction) == (4, 1.0)
    assert constants.retries


def test_an_unknown_profile_is_refused(real: Spec) -> None:
    with pytest.raises(ValueError, match='unknown profile "sed"; did you mean "seed"'):
        set_constant(real, "sed", interval=4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval", True),
        ("interval", 1.0),
        ("interval", -1),
        ("dense", 1),
        ("pin_fraction", True),
        ("pin_fraction", "half"),
        ("pin_fraction", float("nan")),
        ("scope", "node"),
        ("scope", 1),
    ],
)
def test_a_constant_takes_only_its_own_type_and_range(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        coerce_constant(name, value)
