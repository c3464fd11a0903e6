"""What storage and the device copies answer, when a sequence says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..view import operation_key, rid_of
from .engine import QUESTIONS, READS, WRITES
from .storage import Verdict
from .words import DONE, AbsentError, Answer, Part, UnableError, Word
from .world import PAGE


class Answers(Part):
    """Questions, reads and copies of requests."""

    _room: Callable[[], None] | None = None
    """Gives back the room that a hit was denied."""

    def _question(self, rid: str, facts: dict[str, str]) -> Any:
        operations = self.engine.asked.get(rid, [])
        if not operations:
            raise AbsentError(f"no question of {rid} ever went out")
        if "q" in facts:
            number = int(facts["q"])
            if number > len(operations):
                raise AbsentError(f"{rid} has asked {len(operations)} times")
            return operations[number - 1]
        live = self.look.live(rid)
        return operations[-1] if live is None else live

    def reach(self, feed: str, operation: Any) -> None:
        """Bring the thread of a queue into storage for an operation; raises ``UnableError`` with why it is not."""
        engine = self.engine
        busy = engine.serving(feed)
        if busy is operation:
            return
        queue = engine.waiting(feed)
        if not any(one is operation for one in queue):
            raise AbsentError(f"storage owes {self._whose(operation)} no such answer now")
        if busy is not None:
            raise UnableError(
                f"the thread that would serve it is in the middle of another: {self._whose(busy)}"
            )
        if self.world.in_order and queue[0] is not operation:
            raise UnableError(
                f"one thread serves in the order of asking: {self._whose(queue[0])} is before it"
            )
        engine.serve(feed, operation)
        if any(one is operation for one in engine.waiting(feed)):
            raise AbsentError("the thread that would serve it has ended")

    @staticmethod
    def _whose(operation: Any) -> str:
        return rid_of(operation_key(operation)) if hasattr(operation, "storage_hit_count") else "a write"

    def _ask(self, operation: Any, verdict: Verdict) -> None:
        """Storage answers a question; one that was cut before it was put is answered by the controller itself."""
        self.reach(QUESTIONS, operation)
        if self.engine.serving(QUESTIONS) is operation:
            self.engine.tell(QUESTIONS, verdict)
        self.engine.drain()

    def hit(self, word: Word) -> Answer:
        """Storage has the first pages of a span."""
        (rid,) = word.subjects
        operation = self._question(rid, word.facts)
        self.reach(QUESTIONS, operation)
        if word.facts.get("room") == "no":
            self._deny_room(word.facts.get("why", "rate_limited"))
        self._ask(operation, Verdict(word.amount))
        return DONE

    def _deny_room(self, why: str) -> None:
        """Take away the room that a hit would need, until ``alloc``."""
        controller = self.engine.controller
        self.give_room_back()
        if why == "rate_limited" and self.engine.pipeline is not None:
            limit = controller.prefetch_capacity_limit
            controller.prefetch_capacity_limit = 0

            def give_back() -> None:
                controller.prefetch_capacity_limit = limit

        elif why in ("host_capacity", "rate_limited"):
            taken = controller.mem_pool_host.alloc(self.engine.host_free)

            def give_back() -> None:
                controller.mem_pool_host.free(taken)

        else:
            raise UnableError(f"`{why}` follows from other requests: drive those, and say no `room`")
        self._room = give_back

    def give_room_back(self) -> None:
        """A hit that was denied room may have it."""
        if self._room is not None:
            give_back, self._room = self._room, None
            give_back()

    def alloc(self, word: Word) -> Answer:
        """A hit that waited for room has it now."""
        (rid,) = word.subjects
        self.give_room_back()
        self.engine.drain()
        return DONE if self.look.request(rid)["pages"] else ("absent", f"{rid} has no host pages")

    def miss(self, word: Word) -> Answer:
        """Storage has too little."""
        (rid,) = word.subjects
        few = word.facts.get("why") == "below_threshold"
        self._ask(self._question(rid, word.facts), Verdict(max(0, self.world.threshold - 1) if few else 0))
        return DONE

    def xfer(self, word: Word) -> Answer:
        """So many pages have arrived in host memory."""
        (rid,) = word.subjects
        operation = self._question(rid, {})
        want = word.amount or 0
        while self.look.arrived(operation) < want:
            self.reach(READS, operation)
            self.engine.tell(READS, Verdict(1))
        self.engine.drain()
        return DONE

    def done(self, word: Word) -> Answer:
        """The read ended, usable."""
        (rid,) = word.subjects
        operation = self._question(rid, word.facts)
        self.reach(READS, operation)
        while self.engine.serving(READS) is operation:
            full = word.amount is not None and self.look.arrived(operation) >= word.amount
            self.engine.tell(READS, Verdict(0 if full else 1))
        self.engine.drain()
        return DONE

    def fail(self, word: Word) -> Answer:
        """The read ended, useless."""
        (rid,) = word.subjects
        operation = self._question(rid, word.facts)
        self.reach(READS, operation)
        if self.engine.serving(READS) is operation:
            self.engine.tell(READS, Verdict(0, raises=word.facts.get("why", "read_error") == "read_error"))
        self.engine.drain()
        return DONE

    def answer(self, word: Word) -> Answer:
        """Whatever storage owes, it answers truthfully."""
        (rid,) = word.subjects
        operation = self._question(rid, word.facts)
        feed = READS if operation.host_indices is not None else QUESTIONS
        self.reach(feed, operation)
        while self.engine.serving(feed) is operation:
            self.engine.tell(feed, Verdict())
        self.engine.drain()
        return DONE

    def answer_everything(self, feeds: Iterable[str] = (QUESTIONS, READS, WRITES)) -> None:
        """Storage answers truthfully all that it owes, in the order in which it was asked."""
        engine = self.engine
        for feed in feeds if engine.storage is not None else ():
            while True:
                while engine.serving(feed) is not None:
                    engine.tell(feed, Verdict())
                waiting = engine.waiting(feed)
                if not waiting:
                    break
                engine.serve(feed, waiting[0])
                if engine.waiting(feed)[:1] == waiting[:1]:
                    # the thread has ended: nobody will ever answer
                    break

    def ack(self, word: Word) -> Answer:
        """The copy to the device was acknowledged."""
        (rid,) = word.subjects
        ids = self.look.loads(rid)
        if not ids:
            return "absent", f"nothing of {rid} is being copied"
        self.engine.acks.let(ids)
        self.engine.drain()
        if self.look.loads(rid):
            return "refused", "copies end in order: an earlier one, or one of the same batch, has not"
        return DONE

    def limit(self, word: Word) -> Answer:
        """No more than so many host pages may be charged."""
        self.engine.controller.prefetch_capacity_limit = (word.amount or 0) * PAGE
        return DONE
