"""Operations that outlive their attempt, and answers that come too late (#39318, #31668)."""

from threading import Thread

import pytest
from runtime_support import asked, behind_a_head, lifecycle, loaded, passes_until_offered, transferring

from hicache_fsm.runtime import AttemptKey, Completion, HiCacheLifecycle, IllegalTransition
from hicache_fsm.runtime.numbers import AttemptNumbers


def requeued(life: HiCacheLifecycle) -> tuple[AttemptKey, int, int]:
    """An id that was aborted in flight and came back: its new key, the old and the new question."""
    life.enqueue("head", 96)
    old_key = life.enqueue("r", 96)
    old = asked(life, old_key)
    life.abort(old_key)
    key = life.enqueue("r", 96)
    return key, old, asked(life, key)


def test_the_late_answer_of_an_older_attempt_changes_nothing_39318() -> None:
    life = lifecycle()
    key, old, new = requeued(life)
    life.post(Completion(old, "miss"))
    life.begin_pass()
    assert (life.state(key), life.operation(key), life.orphans) == ("probing", new, [])
    assert life.check() == []


def test_upstream_takes_the_late_answer_for_the_newer_question_39318() -> None:
    life = lifecycle("sglang-0.5.23")
    key, old, new = requeued(life)
    life.post(Completion(old, "hit", 96))
    life.begin_pass()
    assert (life.reason(key), life.operation(key), life.orphans) == ("terminated", None, [new])
    assert {violation.invariant for violation in life.check()} == {"one-in-flight"}
    life.post(Completion(new, "hit", 96))
    life.begin_pass()
    assert life.orphans == []


def test_the_late_answer_of_a_question_cut_within_the_same_attempt_changes_nothing_39318() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    old = asked(life, key)
    life.cut(key)
    for _ in range(3):
        life.begin_pass()
    new = life.issue(key)
    life.post(Completion(old, "hit", 96))
    life.begin_pass()
    assert (life.state(key), life.operation(key)) == ("retrying", new)


def test_a_read_acknowledgement_is_never_mistaken_even_upstream() -> None:
    life = lifecycle("sglang-0.5.23")
    life.enqueue("head", 96)
    old_key = life.enqueue("r", 96)
    old = transferring(life, old_key)
    life.abort(old_key)
    key = life.enqueue("r", 96)
    asked(life, key)
    life.post(Completion(old, "done"))
    life.begin_pass()
    assert life.state(key) == "probing"


def test_pages_of_an_aborted_transfer_stay_until_its_io_has_ended_31668() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    op = transferring(life, key)
    life.abort(key)
    assert (life.occupied_tokens, life.orphans) == (96, [op])
    life.post(Completion(op, "fail"))
    life.begin_pass()
    assert (life.occupied_tokens, life.orphans) == (0, [])


def test_a_cut_transfer_keeps_what_was_read_and_leaves_the_rest_to_the_orphan() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    op = transferring(life, key)
    life.cut(key, read_tokens=32)
    assert (life.state(key), life.occupied_tokens) == ("loaded", 96)
    life.post(Completion(op, "done"))
    life.begin_pass()
    assert life.occupied_tokens == 32
    assert life.admit(key) == 32


def test_an_aborted_parked_hit_leaves_no_orphan_40361() -> None:
    life = lifecycle(host_tokens=32)
    key = life.enqueue("r", 96)
    life.hit(key, asked(life, key), 96, 96)
    assert life.state(key) == "parked"
    life.abort(key)
    assert life.orphans == []
    assert life.check() == []


def test_a_parked_hit_is_fetched_once_there_is_room() -> None:
    life = lifecycle(host_tokens=128)
    first, second = life.enqueue("a", 96), life.enqueue("b", 96)
    loaded(life, first)
    life.hit(second, asked(life, second), 96, 96)
    assert not life.unparked(second)
    life.admit(first)
    assert life.unparked(second)
    assert life.state(second) == "transferring"


@pytest.mark.parametrize("read", [0, 32, 96])
def test_a_read_that_ended_just_before_it_was_cut_ends_its_orphan(read: int) -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    op = transferring(life, key)
    life.post(Completion(op, "done", tokens=96))
    life.cut(key, read_tokens=read)
    life.begin_pass()
    assert life.orphans == []
    assert life.occupied_tokens == read


def test_a_question_owns_no_host_pages_31398_19320() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    op = asked(life, key)
    assert life.occupied_tokens == 0
    life.missed(key, op)
    assert life.occupied_tokens == 0


def test_occupancy_does_not_grow_with_aborts_30053() -> None:
    life = lifecycle()
    for _ in range(20):
        key = life.enqueue("r", 96)
        op = transferring(life, key)
        life.abort(key, "bootstrap")
        life.post(Completion(op, "done"))
        life.begin_pass()
    assert (life.occupied_tokens, life.pinned_tokens, life.idle) == (0, 0, True)


def test_completions_are_taken_in_without_the_request_reaching_the_head_32724() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    life.post(Completion(transferring(life, key), "done"))
    life.begin_pass()
    assert life.state(key) == "loaded"


def test_an_operation_answers_for_the_last_time_once() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    op = asked(life, key)
    life.missed(key, op)
    with pytest.raises(IllegalTransition, match="is over"):
        life.missed(key, op)


def test_a_bad_answer_does_not_stop_the_answers_behind_it() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    op = asked(life, key)
    for number in (99, op):
        life.post(Completion(number, "miss"))
    with pytest.raises(IllegalTransition):
        life.begin_pass()
    life.begin_pass()
    assert life.state(key) == "pending"


def test_a_pass_that_a_bad_answer_cut_short_loses_no_offer() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    passes_until_offered(life, key)
    life.post(Completion(99, "miss"))
    with pytest.raises(IllegalTransition):
        life.begin_pass()
    assert life.begin_pass() == [key]


def test_what_was_offered_may_still_be_asked_after_a_pass_that_a_bad_answer_cut_short() -> None:
    life = lifecycle()
    key = behind_a_head(life)
    op = asked(life, key)
    life.lose_anchor(key)
    assert life.begin_pass() == [key]
    life.post(Completion(op, "hit", 96, 96))
    with pytest.raises(IllegalTransition):
        life.begin_pass()
    assert life.issue(key) is not None
    assert life.begin_pass() == []


def test_a_pass_that_a_bad_answer_cut_short_loses_nothing_due_in_it() -> None:
    life = lifecycle(interval=1)
    key = behind_a_head(life)
    life.missed(key, asked(life, key))
    life.begin_pass()
    life.post(Completion(99, "miss"))
    with pytest.raises(IllegalTransition):
        life.begin_pass()
    assert life.begin_pass() == [key]


def test_ranks_may_agree_on_how_many_answers_a_pass_takes_in() -> None:
    life = lifecycle()
    life.enqueue("head", 96)
    keys = [life.enqueue(f"r{i}", 96) for i in range(3)]
    for key in keys:
        life.post(Completion(asked(life, key), "miss"))
    life.begin_pass(drain=2)
    assert [life.state(key) for key in keys] == ["pending", "pending", "probing"]


def test_answers_may_come_from_many_threads() -> None:
    life = lifecycle(host_tokens=None, monitor=True)
    ops = [asked(life, life.enqueue(f"r{i}", 96), None) for i in range(400)]
    threads = [
        Thread(target=lambda part=part: [life.post(Completion(op, "miss")) for op in ops[part::4]])  # type: ignore[misc]
        for part in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    life.begin_pass()
    assert sum(life.misses.values()) == 400
    assert life.check() == []


def test_an_id_in_use_may_not_be_queued_again_but_a_finished_one_may() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    with pytest.raises(IllegalTransition, match="still in use"):
        life.enqueue("r", 96)
    life.admit(key)
    life.finish(key)
    assert life.enqueue("r", 96) == ("r", 1)


def test_the_count_of_attempts_is_kept_for_the_ids_used_last_and_never_falls_back() -> None:
    numbers = AttemptNumbers(remembered=2)
    assert [numbers.take(rid) for rid in "aabca"] == [0, 1, 0, 0, 0]
    assert numbers.take("z", after=4) == 5


def test_a_retracted_request_may_be_aborted_18705() -> None:
    life = lifecycle()
    key = life.enqueue("r", 96)
    loaded(life, key)
    life.admit(key)
    again = life.retract(key, "preempted")
    assert again is not None
    life.abort(again)
    assert life.idle
    assert life.check() == []


def test_pause_with_retraction_and_flush_leaves_nothing_that_holds_31962() -> None:
    life = lifecycle()
    keys = [life.enqueue(f"r{i}", 96) for i in range(3)]
    for key in keys:
        life.admit(key)
    again = [life.retract(key, "paused") for key in keys]
    for retracted in again:
        assert retracted is not None
        asked(life, retracted)
    life.flush()
    for op in life.orphans:
        life.post(Completion(op, "miss"))
    life.begin_pass()
    assert (life.pinned_tokens, life.occupied_tokens, life.orphans, life.waiting) == (0, 0, [], 3)
