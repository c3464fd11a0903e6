import pytest
from transitions import EventData, MachineError

from hicache_fsm.machine.reference import ReferenceMachine, Subject
from hicache_fsm.spec import load_spec


@pytest.fixture(scope="module")
def prefetch() -> ReferenceMachine:
    """The prefetch machine of this project's spec."""
    return ReferenceMachine(load_spec().machines["prefetch"])


def test_effects_are_recorded_in_the_order_of_the_spec(prefetch: ReferenceMachine) -> None:
    subject = prefetch.subject()
    assert prefetch.fire(subject, "issue", {"asks"})
    assert prefetch.fire(subject, "hit", {"room"})
    assert subject.state == "transferring"
    assert subject.effects == ["ask", "pin_anchor", "pin_anchor", "take_pages"]


def test_an_event_without_a_row_raises_and_changes_nothing(prefetch: ReferenceMachine) -> None:
    subject = prefetch.subject("scheduled")
    with pytest.raises(MachineError, match="abort"):
        prefetch.fire(subject, "abort")
    assert (subject.state, subject.effects) == ("scheduled", [])


def test_an_effect_that_raises_leaves_the_subject_in_its_old_state(prefetch: ReferenceMachine) -> None:
    class Full(Subject):
        __slots__ = ()

        def perform(self, effect: str) -> None:
            if effect == "take_pages":
                raise MemoryError(effect)

    subject = Full("probing")
    with pytest.raises(MemoryError):
        prefetch.fire(subject, "hit", {"room"})
    assert subject.state == "probing"


def test_subjects_share_the_machine_and_are_not_decorated(prefetch: ReferenceMachine) -> None:
    one, other = prefetch.subject(), prefetch.subject()
    prefetch.fire(one, "issue", {"asks"})
    assert (one.state, other.state) == ("probing", "queued")
    assert prefetch.engine.models == []
    assert not hasattr(one, "__dict__")


def test_further_callbacks_can_be_hung_on_the_engine() -> None:
    seen: list[tuple[str, str]] = []

    def note(event: EventData) -> None:
        assert event.transition is not None
        seen.append((event.transition.source, event.transition.dest))

    machine = ReferenceMachine(load_spec().machines["operation"])
    machine.engine.after_state_change.append(note)
    machine.fire(machine.subject(), "terminate")
    assert seen == [("asking", "orphan")]
