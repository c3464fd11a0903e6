import tracemalloc

import pytest

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.spec import (
    Effect,
    Event,
    Guard,
    Literal,
    Machine,
    State,
    Transition,
    Witness,
    apply_witness,
    load_spec,
)


def door(*rows: tuple[str, str, str, str]) -> CompiledMachine:
    """A door with rows of (event, source, dest, guards)."""
    return CompiledMachine(
        Machine(
            "door",
            "A door.",
            ("house",),
            "shut",
            {name: State(name, "", name == "gone") for name in ("shut", "open", "gone")},
            {name: Event(name, "", "client") for name in ("push", "burn")},
            {name: Guard(name, "", "fact") for name in ("locked", "stuck", "strong")},
            {"creak": Effect("creak", "")},
            tuple(
                Transition(
                    number,
                    event,
                    source,
                    dest,
                    tuple(Literal(text.removeprefix("!"), text[0] != "!") for text in guards.split()),
                )
                for number, (event, source, dest, guards) in enumerate(rows)
            ),
        )
    )


def decisions(compiled: CompiledMachine, event: int) -> list[tuple[str, tuple[str, ...]] | None]:
    """Where the event leads in every state under every assignment of guards, and what it does."""
    rows = [
        compiled.decide(state, event, truth)
        for state in range(len(compiled.states))
        for truth in range(1 << len(compiled.guards))
    ]
    return [row and (row.transition.dest, row.transition.effects) for row in rows]


@pytest.fixture
def plain() -> CompiledMachine:
    """A door that opens unless it is locked, or locked and shut by someone strong."""
    return door(
        ("push", "shut", "open", "!locked"),
        ("push", "shut", "open", "locked !stuck strong"),
        ("push", "open", "shut", ""),
        ("burn", "shut", "gone", ""),
        ("burn", "open", "gone", ""),
    )


def test_states_events_and_guards_are_numbered_as_they_are_declared(plain: CompiledMachine) -> None:
    assert plain.state_ids == {"shut": 0, "open": 1, "gone": 2}
    assert plain.event_ids == {"push": 0, "burn": 1}
    assert plain.guard_ids == {"locked": 0, "stuck": 1, "strong": 2}
    assert (plain.initial, plain.terminal) == (0, {2})
    assert plain.mask(["locked", "strong"]) == 0b101


def test_a_row_tells_its_masks_and_where_it_leads(plain: CompiledMachine) -> None:
    row = plain.decide(0, 0, plain.mask(["locked", "strong"]))
    assert row is not None
    assert (row.required, row.forbidden, row.reads, row.dest) == (0b101, 0b010, 0b111, 1)
    assert row.transition.row == 1


def test_nothing_is_decided_where_no_row_is_enabled_or_none_exists(plain: CompiledMachine) -> None:
    assert plain.decide(0, 0, plain.mask(["locked"])) is None
    assert plain.decide(2, 0) is None


def test_an_illegal_event_is_explained_by_what_would_be_legal(plain: CompiledMachine) -> None:
    assert plain.explain_illegal(2, 0) == (
        'door: "push" in "gone" is illegal; legal there: nothing, the state is terminal'
    )
    real = CompiledMachine(load_spec().machines["operation"])
    line = real.explain_illegal(real.state_ids["known"], real.event_ids["hold_answer"])
    assert line == 'operation: "hold_answer" in "known" is illegal; legal there: take_pages, end, terminate'


def test_an_event_whose_guards_fail_is_explained_by_what_they_need(plain: CompiledMachine) -> None:
    assert plain.explain_illegal(0, 0) == (
        'door: "push" in "shut" is not enabled; it needs !locked or locked !stuck strong'
    )


def test_guards_are_asked_in_the_order_of_the_rows_and_only_as_far_as_needed(plain: CompiledMachine) -> None:
    asked: list[str] = []

    def answer(name: str, holds: bool) -> object:
        return lambda context, facts: asked.append(name) or holds

    def ask(**answers: bool) -> list[str]:
        asked.clear()
        functions = plain.bind({name: answer(name, answers.get(name, False)) for name in plain.guards})
        plain.decide_lazy(0, 0, functions, None, None)
        return asked

    assert ask() == ["locked"]
    assert ask(locked=True, stuck=True) == ["locked", "stuck"]
    assert ask(locked=True, strong=True) == ["locked", "stuck", "strong"]


def test_what_a_guard_raises_passes_through(plain: CompiledMachine) -> None:
    def broken(context: None, facts: None) -> bool:
        raise RuntimeError("no key")

    with pytest.raises(RuntimeError, match="no key"):
        plain.decide_lazy(0, 0, plain.bind(dict.fromkeys(plain.guards, broken)), None, None)
    assert plain.decide_lazy(1, 0, plain.bind(dict.fromkeys(plain.guards, broken)), None, None) is not None


def test_a_guard_without_a_function_is_named(plain: CompiledMachine) -> None:
    with pytest.raises(ValueError, match="door: no function for stuck, strong"):
        plain.bind({"locked": lambda context, facts: True})


def test_of_overlapping_rows_the_first_in_file_order_wins() -> None:
    overlapping = door(
        ("push", "shut", "open", "stuck"), ("push", "shut", "gone", "strong"), ("push", "shut", "shut", "")
    )
    taken = [
        overlapping.decide(0, 0, overlapping.mask(holding))
        for holding in (["stuck", "strong"], ["strong"], [])
    ]
    assert [row and row.transition.row for row in taken] == [0, 1, 2]
    assert len(overlapping.rows(0, 0)) == 3


def test_a_mutated_spec_compiles_and_decides_differently() -> None:
    spec = load_spec()
    mutated = apply_witness(spec, Witness("drop", "guard", "pin", "pin", "fits"))
    dests = []
    for machine in (spec.machines["pin"], mutated.machines["pin"]):
        compiled = CompiledMachine(machine)
        row = compiled.decide(compiled.initial, compiled.event_ids["pin"], compiled.mask(["anchored"]))
        dests.append(row and compiled.states[row.dest])
    assert dests == ["capped", "pinned"]


def test_the_witness_of_every_invariant_changes_a_decision_of_the_compiled_table() -> None:
    spec = load_spec()
    for invariant in spec.invariants.values():
        witness = invariant.witness
        if witness.machine:
            pair = [each.machines[witness.machine] for each in (spec, apply_witness(spec, witness))]
            event = [*pair[0].events].index(witness.event)
            original, mutated = (decisions(CompiledMachine(machine), event) for machine in pair)
            assert original != mutated, invariant.id


def test_a_decision_allocates_nothing_that_lasts(plain: CompiledMachine) -> None:
    truth = plain.mask(["locked", "strong"])
    plain.decide(0, 0, truth)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(100):
        plain.decide(0, 0, truth)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 200
