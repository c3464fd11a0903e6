"""The compiled table and the `transitions` machine, built from one spec, must be the same machine."""

from collections.abc import Iterator
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transitions import MachineError

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.machine.reference import ReferenceMachine
from hicache_fsm.spec import Machine, load_spec

MACHINES = load_spec().machines


def assignments(compiled: CompiledMachine, mask: int) -> Iterator[tuple[str, ...]]:
    """Every set of guards that may hold together among those in the mask."""
    guards = [guard for guard, number in compiled.guard_ids.items() if mask >> number & 1]
    for count in range(len(guards) + 1):
        yield from combinations(guards, count)


def decide(
    compiled: CompiledMachine, state: str, event: str, holding: tuple[str, ...]
) -> tuple[str, int] | None:
    row = compiled.decide(compiled.state_ids[state], compiled.event_ids[event], compiled.mask(holding))
    return row and (compiled.states[row.dest], row.transition.row)


def fire(
    reference: ReferenceMachine, state: str, event: str, holding: tuple[str, ...]
) -> tuple[str, int] | None:
    subject = reference.subject(state)
    try:
        moved = reference.fire(subject, event, holding)
    except MachineError:
        moved = False
    if not moved:
        assert (subject.state, subject.effects, subject.rows) == (state, [], [])
        return None
    (row,) = subject.rows
    assert subject.effects == [*reference.machine.transitions[row].effects]
    return subject.state, row


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_both_decide_alike_in_every_state_on_every_event_under_every_assignment(machine: Machine) -> None:
    compiled, reference = CompiledMachine(machine), ReferenceMachine(machine)
    for state in machine.states:
        for event in machine.events:
            mask = compiled.reads(compiled.state_ids[state], compiled.event_ids[event])
            for holding in assignments(compiled, mask):
                expected = fire(reference, state, event, holding)
                assert decide(compiled, state, event, holding) == expected, (state, event, holding)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_lazy_decisions_equal_eager_ones_and_ask_each_guard_at_most_once(machine: Machine) -> None:
    compiled = CompiledMachine(machine)
    asked: list[str] = []

    def guard(name: str) -> object:
        return lambda context, facts: asked.append(name) or name in context

    functions = compiled.bind({name: guard(name) for name in machine.guards})
    for state in range(len(compiled.states)):
        for event in range(len(compiled.events)):
            reads = compiled.reads(state, event)
            for holding in assignments(compiled, reads):
                asked.clear()
                lazy = compiled.decide_lazy(state, event, functions, holding, None)
                assert lazy is compiled.decide(state, event, compiled.mask(holding))
                assert len(asked) == len(set(asked))
                assert compiled.mask(asked) & ~reads == 0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(MACHINES)), st.integers(0, 2**32), st.integers(1, 400))
def test_both_stay_in_step_on_long_random_walks(name: str, seed: int, steps: int) -> None:
    machine = MACHINES[name]
    compiled, reference = CompiledMachine(machine), ReferenceMachine(machine)
    random = Random(seed)
    subject, state = reference.subject(), compiled.initial
    expected: list[str] = []
    for _ in range(steps):
        legal = [compiled.events[number] for number in compiled.legal(state)]
        event = random.choice(legal if random.random() < 0.9 else compiled.events)
        holding = [guard for guard in machine.guards if random.random() < 0.5]
        try:
            reference.fire(subject, event, holding)
        except MachineError:
            assert event not in reference.legal(subject.state)
        row = compiled.decide(state, compiled.event_ids[event], compiled.mask(holding))
        if row is not None:
            state = row.dest
            expected += row.transition.effects
        assert subject.state == compiled.states[state]
        if state in compiled.terminal:
            subject.state, state = machine.initial, compiled.initial
    assert subject.effects == expected


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_both_call_the_same_events_legal(machine: Machine) -> None:
    compiled, reference = CompiledMachine(machine), ReferenceMachine(machine)
    for number, state in enumerate(compiled.states):
        assert reference.legal(state) == tuple(compiled.events[event] for event in compiled.legal(number))
