"""A machine to embed decides as the compiled table and the `transitions` machine do, and remembers what it did."""

import sys
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest
from test_machine_agreement import MACHINES, assignments, decide, fire

from hicache_fsm.machine import CompiledMachine, IllegalTransition, Tracer
from hicache_fsm.machine.reference import ReferenceMachine
from hicache_fsm.spec import Machine

PIN = MACHINES["pin"]
YES: dict[str, Any] = dict.fromkeys(PIN.guards, True)


@dataclass
class Thing:
    """One subject; the guards that hold are the facts of its events."""

    state: str
    name: str = "a"

    def __str__(self) -> str:
        return self.name


def holding(machine: Machine) -> dict[str, Any]:
    """Guards that hold where the facts name them."""
    return {name: lambda thing, facts, name=name: name in facts for name in machine.guards}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_it_decides_as_table_and_reference_in_every_state_on_every_event_under_every_assignment(
    machine: Machine,
) -> None:
    compiled, reference = CompiledMachine(machine), ReferenceMachine(machine)
    done: list[str] = []
    effects = {name: lambda thing, facts, name=name: done.append(name) for name in machine.effects}
    tracer: Tracer[Thing] = Tracer(machine, holding(machine), effects)
    for event in machine.events:
        take = tracer.trigger(event)
        for state in machine.states:
            mask = compiled.reads(compiled.state_ids[state], compiled.event_ids[event])
            for facts in assignments(compiled, mask):
                thing = Thing(state)
                done.clear()
                try:
                    row = take(thing, facts)
                except IllegalTransition:
                    taken = None
                    assert (thing.state, done) == (state, [])
                else:
                    taken = (thing.state, row.row)
                    assert done == [*row.effects]
                assert taken == decide(compiled, state, event, facts) == fire(reference, state, event, facts)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_its_counts_and_its_trace_are_those_of_a_random_walk(machine: Machine) -> None:
    tracer: Tracer[Thing] = Tracer(machine, holding(machine), entries=50)
    triggers = {event: tracer.trigger(event) for event in machine.events}
    random, things = Random(7), [Thing(machine.initial, name) for name in "abc"]
    walked: list[tuple[int, str, int]] = []
    refused: Counter[tuple[str, str]] = Counter()
    for step in range(600):
        tracer.now = step // 5
        thing, event = random.choice(things), random.choice([*machine.events])
        facts = [guard for guard in machine.guards if random.random() < 0.5]
        before = thing.state
        try:
            walked.append((tracer.now, thing.name, triggers[event](thing, facts).row))
        except IllegalTransition:
            refused[before, event] += 1
        if thing.state in machine.terminal:
            thing.state = machine.initial
    assert {row.row: count for row, count in tracer.counts().items() if count} == Counter(
        row for _, _, row in walked
    )
    assert tracer.refused == refused
    assert [(one.pass_, one.subject.name, one.row.row) for one in tracer.trace()] == walked[-50:]
    assert [(one.pass_, one.row.row) for one in tracer.trace(things[1])] == [
        (now, row) for now, name, row in walked[-50:] if name == "b"
    ]


def test_a_transition_calls_its_guards_and_one_append() -> None:
    tracer: Tracer[Thing] = Tracer(PIN, holding(PIN))
    pin, thing = tracer.trigger("pin"), Thing("unpinned")
    called: list[str] = []

    def trace(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            called.append(frame.f_code.co_name if event == "call" else argument.__name__)

    sys.setprofile(trace)
    try:
        pin(thing, ("anchored", "fits"))
    finally:
        sys.setprofile(None)
    assert called == ["fire", "<lambda>", "<lambda>", "append", "setprofile"]


def test_a_row_that_leads_elsewhere_shows_in_the_comparison() -> None:
    wrong = replace(PIN, transitions=(replace(PIN.transitions[0], dest="lost"), *PIN.transitions[1:]))
    thing = Thing(PIN.transitions[0].source)
    row = Tracer[Thing](wrong, YES).trigger(PIN.transitions[0].event)(thing)
    table = CompiledMachine(PIN)
    assert (thing.state, row.row) != decide(table, row.source, row.event, tuple(PIN.guards))


def test_a_refusal_says_what_is_legal_and_what_the_subject_did() -> None:
    tracer: Tracer[Thing] = Tracer(PIN, YES)
    pin, unpin = tracer.trigger("pin"), tracer.trigger("unpin")
    one, other = Thing("unpinned", "r1"), Thing("unpinned", "r2")
    tracer.now = 3
    pin(one)
    pin(other)
    tracer.now = 4
    unpin(one)
    with pytest.raises(IllegalTransition) as refused:
        unpin(one)
    assert str(refused.value) == (
        'r1: pin: "unpin" in "released" is illegal; legal there: nothing, the state is terminal\n'
        "  pass 3  pin -> pinned\n"
        "  pass 4  unpin -> released"
    )
    assert (one.state, tracer.refused) == ("released", {("released", "unpin"): 1})


def test_an_entry_reads_as_one_line() -> None:
    tracer: Tracer[Thing] = Tracer(PIN, YES)
    tracer.trigger("pin")(Thing("unpinned", "r1"))
    assert [str(entry) for entry in tracer.trace()] == ["pass 0  r1  unpinned --pin--> pinned"]


def test_a_trace_is_what_was_remembered_when_it_was_asked_for() -> None:
    tracer: Tracer[Thing] = Tracer(PIN, YES)
    pin = tracer.trigger("pin")
    pin(Thing("unpinned"))
    for entry in tracer.trace():
        pin(Thing("unpinned", f"after {entry.subject}"))
    assert [entry.subject.name for entry in tracer.trace()] == ["a", "after a"]


def test_an_effect_that_raises_leaves_the_old_state_and_nothing_in_the_books() -> None:
    def fails(thing: Thing, facts: object) -> None:
        raise MemoryError

    tracer: Tracer[Thing] = Tracer(PIN, YES, {"lock_anchor": fails})
    thing = Thing("unpinned")
    with pytest.raises(MemoryError):
        tracer.trigger("pin")(thing)
    assert thing.state == "unpinned"
    assert not any(tracer.counts().values())
    assert not list(tracer.trace())


def test_a_guard_is_asked_only_if_the_decision_hangs_on_it() -> None:
    asked: list[str] = []

    def anchored(thing: Thing, facts: object) -> bool:
        asked.append("anchored")
        return False

    def fits(thing: Thing, facts: object) -> bool:
        asked.append("fits")
        return True

    tracer: Tracer[Thing] = Tracer(PIN, {**YES, "anchored": anchored, "fits": fits})
    thing = Thing("unpinned")
    tracer.trigger("pin")(thing)
    assert (thing.state, asked) == ("lost", ["anchored"])


@pytest.mark.parametrize(
    ("guards", "effects", "said"),
    [
        ({}, {}, "pin: no function for"),
        (YES, {"lock_ancor": print}, "pin: has no effect lock_ancor"),
    ],
)
def test_a_name_that_does_not_fit_is_refused_when_it_is_built(
    guards: dict[str, Any], effects: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Tracer(PIN, guards, effects)
    with pytest.raises(KeyError):
        Tracer(PIN, YES).trigger("push")
