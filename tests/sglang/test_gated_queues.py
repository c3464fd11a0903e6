"""The gates of the gated target, on threads and queues shaped like the controller's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest

from hicache_fsm.sglang.harness.gates import AckGate, Rest, feed_queues
from hicache_fsm.sglang.harness.pacing import FEEDS, THREADS, SettleError


class Storage:
    """Holds the calls of the threads named in ``held``."""

    def __init__(self) -> None:
        self.held: set[int | None] = set()

    def holds(self, thread: int | None) -> bool:
        return thread in self.held


class Controller:
    """Four workers that take from their feeds and remember what they took."""

    def __init__(self, gate: threading.Event) -> None:
        queues = feed_queues(gate)
        self.storage_backend: Any = Storage()
        self.took: list[str] = []
        self.stop = threading.Event()
        for feed, name in zip(FEEDS, THREADS, strict=True):
            setattr(self, feed, queues())
            thread = threading.Thread(target=self._work, args=(feed,), daemon=True)
            setattr(self, name, thread)
            thread.start()

    def _work(self, feed: str) -> None:
        while not self.stop.is_set():
            try:
                item = getattr(self, feed).get(block=True, timeout=1)
            except Empty:
                continue
            if item is not None:
                self.took.append(item)


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
def controller(gate: threading.Event) -> Iterator[Controller]:
    made = Controller(gate)
    yield made
    made.stop.set()
    gate.set()
    for feed in FEEDS:
        getattr(made, feed).let_all()
        getattr(made, feed).put(None)


def test_a_thread_takes_only_what_it_is_told_to_and_in_that_order(
    controller: Controller, gate: threading.Event
) -> None:
    rest, queue = Rest(controller, gate), controller.prefetch_queue  # type: ignore[attr-defined]
    first, second = "first", "second"
    queue.put(first)
    queue.put(second)
    rest.settle()
    assert controller.took == []
    queue.choose(second)
    rest.settle()
    assert controller.took == [second]
    queue.choose(first)
    rest.settle()
    assert controller.took == [second, first]


def test_what_is_not_queued_cannot_be_chosen(controller: Controller) -> None:
    with pytest.raises(ValueError, match="not queued"):
        controller.prefetch_queue.choose("absent")  # type: ignore[attr-defined]


def test_a_thread_that_was_let_go_takes_everything_in_order(
    controller: Controller, gate: threading.Event
) -> None:
    rest, queue = Rest(controller, gate), controller.backup_queue  # type: ignore[attr-defined]
    for item in ("a", "b", "c"):
        queue.put(item)
    queue.let_all()
    rest.settle()
    assert controller.took == ["a", "b", "c"]


def test_nothing_goes_on_between_two_steps(controller: Controller, gate: threading.Event) -> None:
    rest, queue = Rest(controller, gate), controller.prefetch_queue  # type: ignore[attr-defined]
    rest.settle()
    item = "late"
    queue.put(item)
    queue.choose(item)
    assert not gate.is_set()
    assert controller.took == []
    rest.settle()
    assert controller.took == [item]


def test_the_owner_takes_from_a_queue_without_asking(controller: Controller, gate: threading.Event) -> None:
    queue = feed_queues(gate)()
    queue.put("answer")
    assert queue.get(timeout=1) == "answer"


def test_a_queue_tells_what_is_put_into_it(controller: Controller) -> None:
    seen: list[str] = []
    queue = controller.prefetch_queue  # type: ignore[attr-defined]
    queue.on_put = seen.append
    queue.put("a")
    queue.put(None)
    assert seen == ["a"]


def test_a_thread_held_by_storage_is_at_rest_and_one_that_hangs_is_named(
    controller: Controller, gate: threading.Event
) -> None:
    hang = threading.Event()
    controller.took = Waiting(hang)  # type: ignore[assignment]
    queue = controller.backup_queue  # type: ignore[attr-defined]
    item = "stuck"
    queue.put(item)
    queue.choose(item)
    with pytest.raises(SettleError, match="backup_thread did not settle"):
        Rest(controller, gate, limit_s=0.2).settle()
    controller.storage_backend.held.add(controller.backup_thread.ident)  # type: ignore[attr-defined]
    Rest(controller, gate, limit_s=0.2).settle()
    hang.set()


class Waiting(list[str]):
    """A list whose append waits."""

    def __init__(self, until: threading.Event) -> None:
        super().__init__()
        self._until = until

    def append(self, item: str) -> None:
        self._until.wait(10)


class Ack:
    def __init__(self, *ids: int) -> None:
        self.node_ids = list(ids)


class Tree:
    """As much of the tree as the gate of copies needs: on a CPU every copy is ready at once."""

    def __init__(self) -> None:
        self.cache_controller = self
        self.ack_load_queue: list[Ack] = []
        self.ack_write_queue: list[Ack] = []
        self._count_ready_acks: Any = len


def test_a_copy_to_the_device_is_finished_when_it_is_told_to_be() -> None:
    tree = Tree()
    gate = AckGate(tree)
    tree.ack_load_queue += [Ack(1), Ack(2, 3)]
    tree.ack_write_queue += [Ack(9)]
    assert tree._count_ready_acks(tree.ack_load_queue) == 0
    assert tree._count_ready_acks(tree.ack_write_queue) == 1
    gate.let([2, 3])
    assert tree._count_ready_acks(tree.ack_load_queue) == 0, "copies end in order"
    gate.let([1])
    assert tree._count_ready_acks(tree.ack_load_queue) == 2


def test_a_copy_of_a_batch_ends_for_all_of_it_or_not_at_all() -> None:
    tree = Tree()
    gate = AckGate(tree)
    tree.ack_load_queue.append(Ack(2, 3))
    gate.let([2])
    assert tree._count_ready_acks(tree.ack_load_queue) == 0
    gate.reset()
    gate.let([2, 3])
    assert tree._count_ready_acks(tree.ack_load_queue) == 1
