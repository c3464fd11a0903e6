"""Counting by a wheel is the same as stepping the table pass by pass, at a cost that ignores who waits."""

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_support import lifecycle

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.rules import retry_due
from hicache_fsm.runtime import AttemptKey, Completion, FlightRecorder, HiCacheLifecycle, IllegalTransition
from hicache_fsm.runtime.attempt import Attempt
from hicache_fsm.runtime.guards import moment_of, prefetch_guards, which
from hicache_fsm.spec import load_spec

TABLE = CompiledMachine(load_spec().machines["prefetch"])


@dataclass
class Stepped:
    """One attempt swept by the table itself, once in every pass."""

    state: int
    immediate: bool = False
    waited: int = 0
    spent: int = 0

    def sweep(self, interval: int, budget: int, head: bool, asks: bool) -> bool:
        """Whether this sweep asked."""
        truth = TABLE.mask(
            name
            for name, holds in {
                "head_exempt": head,
                "immediate": self.immediate,
                "budget_left": self.spent < budget,
                "due": retry_due(self.waited, interval),
                "paces": interval > 0,
                "asks": asks,
            }.items()
            if holds
        )
        row = TABLE.decide(self.state, TABLE.event_ids["sweep"], truth)
        if row is None:
            return False
        effects = row.transition.effects
        self.state = row.dest
        self.waited = 1 if "start_wait" in effects else self.waited + ("count_pass" in effects)
        self.spent += "spend" in effects
        return "ask" in effects


events = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["miss", "lose_anchor", "decline", "leave", "pass", "pass", "pass"]),
    ),
    max_size=60,
)


@given(interval=st.integers(1, 5), budget=st.integers(0, 3), head_rule=st.booleans(), script=events)
@settings(max_examples=300, deadline=None)
def test_the_wheel_asks_on_the_passes_on_which_the_table_does(
    interval: int, budget: int, head_rule: bool, script: list[tuple[int, str]]
) -> None:
    profile = "sglang-0.5.23" if head_rule else "seed"
    life = lifecycle(profile, interval=interval, max_attempts=budget, monitor=False)
    known = life.settings.constants.immediate_known_hit
    ids, queued = TABLE.state_ids, TABLE.initial
    keys = [life.enqueue(f"r{i}", 96) for i in range(5)]
    table = {key: Stepped(queued) for key in keys}
    declining: set[AttemptKey] = set()
    for number, event in script:
        key = keys[number]
        one = table.get(key)
        if event == "pass":
            sweep(life, table, declining, interval, budget, head_rule)
        elif one is None:
            continue
        elif event == "leave":
            if life.state(key) not in ("probing", "retrying"):
                life.abort(key)
                del table[key]
        elif event == "decline":
            declining ^= {key}
        else:
            if one.state == queued:
                life.issue(key)
                one.state = ids["probing"]
            if one.state in (ids["probing"], ids["retrying"]):
                one.state = ids["missed"]
                one.immediate = event == "lose_anchor" and known
                if event == "miss":
                    life.missed(key, life.operation(key) or 0)
                else:
                    life.lose_anchor(key)
    assert {key: (life.state(key), life.spent(key)) for key in table} == {
        key: (TABLE.states[one.state], one.spent) for key, one in table.items()
    }


def sweep(
    life: HiCacheLifecycle,
    table: dict[AttemptKey, Stepped],
    declining: set[AttemptKey],
    interval: int,
    budget: int,
    head_rule: bool,
) -> None:
    """One pass on both sides; whoever declines is offered and not asked."""
    offered = life.begin_pass()
    expected = []
    for place, (key, one) in enumerate(table.items()):
        probe = Stepped(one.state, one.immediate, one.waited, one.spent)
        if probe.sweep(interval, budget, head_rule and place == 0, True):
            expected.append(key)
            if key in declining:
                continue
        one.sweep(interval, budget, head_rule and place == 0, True)
    assert offered == expected
    for key in offered:
        if key not in declining:
            assert life.issue(key) is not None


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12),
    st.sampled_from(["recommended", "sglang-0.5.23", "seed"]),
)
def test_a_guard_holds_for_those_of_many_attempts_for_which_it_holds_alone(
    drawn: list[tuple[int, bool]], profile: str
) -> None:
    life = lifecycle(profile, max_attempts=3, monitor=False)
    attempts = [
        Attempt(AttemptKey(f"r{place}", 0), 96, place, 0, "", spent=spent, immediate=immediate)
        for place, (spent, immediate) in enumerate(drawn)
    ]
    for guard in prefetch_guards(life.settings).values():
        if not isinstance(guard, bool):
            moment = moment_of(5)
            assert which(guard)(attempts, moment) == [one for one in attempts if guard(one, moment)]


def test_requests_that_missed_together_part_by_their_budgets_in_one_sweep() -> None:
    life = lifecycle(interval=1, max_attempts=1, monitor=False)
    life.enqueue("head", 96)
    keys = [life.enqueue(f"r{number}", 96) for number in range(6)]
    for key in keys[:3]:
        life.missed(key, life.issue(key) or 0)
    life.begin_pass()
    for key in [*life.begin_pass(), *keys[3:]]:
        life.missed(key, life.issue(key) or 0)
    life.begin_pass()
    assert [life.state(key) for key in keys] == ["exhausted"] * 3 + ["pending"] * 3
    assert [life.history(key)[-1].state for key in keys] == ["exhausted"] * 3 + ["pending"] * 3
    assert life.begin_pass() == keys[3:]


def calls(action: Callable[[], object]) -> int:
    """How many Python and C functions the action calls: work, not time."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # a collection calls what others have hooked into it
    sys.setprofile(trace)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def waiting(number: int, armed: int, interval: int = 50) -> HiCacheLifecycle:
    life = lifecycle(interval=interval, monitor=False, pool_tokens=10**9, host_tokens=None)
    keys = [life.enqueue(f"r{i}", 96) for i in range(number)]
    for key in keys[number - armed :]:
        life.post(Completion(life.issue(key) or 0, "miss"))
    life.begin_pass()
    return life


@pytest.mark.parametrize("armed_share", [0.0, 0.1, 1.0])
def test_a_pass_with_nothing_due_does_the_same_work_for_100_and_100_000_waiting(armed_share: float) -> None:
    few, many = (waiting(number, int(number * armed_share)) for number in (100, 100_000))
    assert calls(few.begin_pass) == calls(many.begin_pass) < 20


def test_a_pass_with_k_due_works_for_k_and_not_for_those_who_wait() -> None:
    def work(number: int, due: int) -> int:
        life = waiting(number, due, interval=1)
        return calls(life.begin_pass)

    assert work(1_000, 10) == work(20_000, 10)
    assert work(1_000, 100) - work(1_000, 10) <= 10 * (work(1_000, 10) - work(1_000, 0))


def test_markers_that_went_up_together_cost_one_call_each() -> None:
    def work(number: int) -> int:
        life = lifecycle(interval=50, monitor=False, pool_tokens=10**9, host_tokens=None)
        life.enqueue("head", 96)
        for key in [life.enqueue(f"r{i}", 96) for i in range(number)]:
            life.missed(key, life.issue(key) or 0)
        return calls(life.begin_pass)

    assert work(1_000) - work(10) == 990


def test_a_flight_recorder_adds_two_calls_to_a_step() -> None:
    def work(log: FlightRecorder | None) -> int:
        life = lifecycle(log=log, monitor=False)
        key = life.enqueue("r", 96)
        return calls(lambda: life.issue(key))

    assert work(FlightRecorder()) - work(None) == 2


def test_requests_that_left_are_dropped_once_and_never_looked_at_again() -> None:
    life = waiting(1_000, 500, interval=3)
    idle = calls(life.begin_pass)
    for i in range(500, 1_000):
        life.abort(AttemptKey(f"r{i}", 0))
    life.begin_pass()
    assert life.begin_pass() == []
    assert list(life._core.pacing.waiting()) == []
    assert calls(life.begin_pass) <= idle


@pytest.mark.parametrize(("profile", "interval"), [("seed", 0), ("sglang-0.5.23", 0), ("recommended", 0)])
def test_markers_that_no_pass_sweeps_are_not_kept(profile: str, interval: int) -> None:
    life = lifecycle(profile, interval=interval, monitor=False)
    for i in range(3):
        key = life.enqueue(f"r{i}", 96)
        life.missed(key, life.issue(key) or 0)
        life.begin_pass()
        life.abort(key)
    assert list(life._core.pacing.waiting()) == []


def test_an_offer_to_ask_again_survives_the_loss_of_the_hold() -> None:
    life = HiCacheLifecycle("recommended", pool_tokens=4096, max_context_len=1024, interval=2)
    life.enqueue("head", 64)
    key = life.enqueue("r", 64)
    life.missed(key, life.issue(key, asks=True))
    assert [life.begin_pass() for _ in range(3)] == [[], [], [key]]
    assert life.shrink(key)
    assert life.begin_pass() == [key]


def test_a_refused_second_answer_leaves_a_parked_hit_as_it_was() -> None:
    life = HiCacheLifecycle("recommended", pool_tokens=4096, max_context_len=1024, host_tokens=64)
    key = life.enqueue("r", 96)
    question = life.issue(key, asks=True)
    life.hit(key, question, 96, 96, room=True)
    assert life.state(key) == "parked"
    with pytest.raises(IllegalTransition):
        life.hit(key, question, 32, 96, room=True)
    assert not life.unparked(key)
