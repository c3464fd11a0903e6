"""The I/O clock, on threads and queues shaped like the controller's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, Queue

import pytest

from hicache_fsm.sglang.harness.pacing import FEEDS, THREADS, IoClock, SettleError
from hicache_fsm.sglang.settings import IoLatency


class Storage:
    def __init__(self) -> None:
        self.stored: set[str] = set()

    def batch_exists(self, key: str) -> bool:
        return key in self.stored

    def batch_get(self, key: str) -> bool:
        return key in self.stored

    def batch_set(self, key: str) -> bool:
        self.stored.add(key)
        return True


class Controller:
    """Four workers that take from their feeds, call storage, and answer."""

    def __init__(self) -> None:
        self.storage_backend = Storage()
        self.stop = threading.Event()
        self.answers: Queue[tuple[str, str, bool]] = Queue()
        calls = ("batch_exists", "batch_get", None, "batch_set")
        for feed, name, call in zip(FEEDS, THREADS, calls, strict=True):
            setattr(self, feed, Queue())
            thread = threading.Thread(target=self._work, args=(feed, call), daemon=True)
            setattr(self, name, thread)
            thread.start()

    def _work(self, feed: str, call: str | None) -> None:
        while not self.stop.is_set():
            try:
                item = getattr(self, feed).get(block=True, timeout=1)
            except Empty:
                continue
            if item is not None and call is not None:
                self.answers.put((call, item, getattr(self.storage_backend, call)(item)))

    def ask(self, feed: str, item: str) -> None:
        getattr(self, feed).put(item)

    def answered(self) -> list[tuple[str, str, bool]]:
        return [self.answers.get_nowait() for _ in range(self.answers.qsize())]


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    yield made
    made.stop.set()
    for feed in FEEDS:
        getattr(made, feed).put(None)


def test_a_call_answers_on_its_pass_and_not_before(controller: Controller) -> None:
    clock = IoClock(controller, IoLatency(exists=3, read=1, write=1))
    controller.ask("prefetch_queue", "a")
    answers = []
    for _ in range(5):
        clock.begin_pass()
        answers.append(controller.answered())
    # handed over before pass 1, asked in it, due three passes later
    assert answers == [[], [], [], [("batch_exists", "a", False)], []]
    clock.release_all()


def test_a_write_and_a_question_due_on_one_pass_never_race(controller: Controller) -> None:
    clock = IoClock(controller, IoLatency(exists=2, read=2, write=2))
    for turn in range(30):
        controller.ask("prefetch_queue", str(turn))
        controller.ask("backup_queue", str(turn))
        for _ in range(3):
            clock.begin_pass()
        assert controller.answered() == [("batch_set", str(turn), True), ("batch_exists", str(turn), True)]
    clock.release_all()


def test_storage_that_owes_an_answer_is_busy_until_it_is_released(controller: Controller) -> None:
    clock = IoClock(controller, IoLatency(exists=100, read=1, write=1))
    assert not clock.busy
    controller.ask("prefetch_queue", "a")
    clock.begin_pass()
    assert clock.busy
    clock.release_all()
    assert controller.answers.get(timeout=10) == ("batch_exists", "a", False)
    assert not clock.busy


def test_a_thread_that_hangs_is_named(controller: Controller) -> None:
    never = threading.Event()
    controller.storage_backend.batch_get = lambda _key: never.wait()  # type: ignore[method-assign]
    clock = IoClock(controller, IoLatency(exists=1, read=0, write=1), settle_limit_s=0.2)
    controller.ask("prefetch_buffer", "a")
    with pytest.raises(SettleError, match="prefetch_io_aux_thread did not settle"):
        clock.begin_pass()
    never.set()
    clock.release_all()
