"""The systems are what the spec's tables say, under any change of them."""

from dataclasses import replace

import pytest

from hicache_fsm.model import ModelError, System, configurations, load_configurations, system, systems
from hicache_fsm.spec import load_spec
from hicache_fsm.spec.mutate import apply_witness, set_constant
from hicache_fsm.spec.types import Spec, Witness

SPEC = load_spec()


def named(built: System, event: str) -> list[str]:
    return [action.name for action in built.actions if action.event == event]


def changed(spec: Spec, **witness: str) -> System:
    return system(apply_witness(spec, Witness(**witness)), "recommended", "admission.alone")  # type: ignore[arg-type]


def test_every_invariant_is_checked_in_every_system_that_it_names() -> None:
    checked = {
        (each.name, invariant) for each in systems(SPEC, "recommended") for invariant in each.invariants
    }
    wanted = {(name, each.id) for each in SPEC.invariants.values() for name in each.systems}
    assert checked == wanted


def test_every_configuration_says_in_one_sentence_why_its_bounds_are_honest() -> None:
    for each in load_configurations().values():
        assert each.why.endswith("."), each.name
        assert len(each.why) > 40, each.name


def test_a_dropped_row_is_a_missing_step() -> None:
    assert named(system(SPEC, "recommended", "admission.alone"), "done") == [
        "prefetch.done r0 [asks_tail]",
        "prefetch.done r0 [!asks_tail]",
    ]
    mutant = changed(
        SPEC, action="drop", target="transition", machine="prefetch", event="done", dest="missed"
    )
    assert named(mutant, "done") == ["prefetch.done r0 [!asks_tail]"]


def test_a_dropped_effect_is_a_variable_left_alone() -> None:
    whole = system(SPEC, "recommended", "admission.alone")
    mutant = changed(
        SPEC, action="drop", target="effect", machine="prefetch", event="abort", name="release_hold"
    )
    updates = [next(a.updates for a in each.actions if a.event == "abort") for each in (whole, mutant)]
    assert [each for each in updates[0] if each not in updates[1]] == ["r0.hold", "host_free", "occupied"]


def test_a_dropped_guard_of_a_nested_row_makes_two_steps() -> None:
    whole = system(SPEC, "recommended", "admission.alone")
    mutant = changed(SPEC, action="drop", target="guard", machine="pin", event="pin", name="fits")
    issues = [named(each, "enqueue") for each in (whole, mutant)]
    assert len(issues[1]) == len(issues[0]) + 1


def test_a_late_pin_is_not_taken_with_the_question() -> None:
    late = system(set_constant(SPEC, "recommended", pins_early=False), "recommended", "admission.alone")
    asking = next(action for action in late.actions if "ask" in action.effects)
    assert "pinned" not in asking.updates


def test_a_request_keyed_by_rid_may_take_its_orphans_answer() -> None:
    assert not named(system(SPEC, "recommended", "admission.alone"), "orphan_answer")
    assert named(system(SPEC, "seed", "admission.alone"), "orphan_answer")


def test_without_retries_there_is_no_sweep() -> None:
    assert not named(system(SPEC, "recommended", "admission-disabled.interval"), "tick")
    assert not named(system(SPEC, "recommended", "admission-disabled.dense"), "tick")


def test_an_unknown_configuration_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"admission\.pair"):
        system(SPEC, "recommended", "admission.many")


def test_a_bound_that_a_system_does_not_have_is_refused() -> None:
    known = load_configurations()["belief.chain"]
    with pytest.raises(ModelError, match=r"belief\.chain"):
        system(SPEC, "recommended", replace(known, bounds={**known.bounds, "ranks": 2}))


def test_a_name_without_a_meaning_is_refused() -> None:
    mutant = apply_witness(
        SPEC,
        Witness("swap", "effect", machine="prefetch", event="abort", name="release_hold", value="ask"),
    )
    prefetch = mutant.machines["prefetch"]
    rows = tuple(
        replace(row, effects=("vanish",)) if row.event == "abort" else row for row in prefetch.transitions
    )
    strange = replace(mutant, machines={**mutant.machines, "prefetch": replace(prefetch, transitions=rows)})
    with pytest.raises(ModelError, match="vanish"):
        system(strange, "recommended", "admission.alone")


def test_every_default_configuration_builds_for_every_profile() -> None:
    for profile in SPEC.profiles:
        assert [each.configuration for each in systems(SPEC, profile)] == configurations()


def test_every_variable_says_what_it_is() -> None:
    for each in systems(SPEC, "recommended"):
        assert all(variable.about.endswith(".") for variable in each.layout.variables)
