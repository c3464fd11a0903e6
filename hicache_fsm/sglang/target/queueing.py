"""The waiting queue, the batch, and what the engine does as a whole."""

from __future__ import annotations

import time
from inspect import signature
from typing import Any

from ..view import key_of
from .answers import Answers
from .engine import SPARE, GatedEngine
from .look import Looker
from .words import DONE, Answer, Part, UnableError, Word
from .world import OUTPUT, TAIL, PlainWorld

PRIORITY = 1000
"""Further from the others than upstream's threshold for preemption."""


class Queue(Part):
    """Requests on their way in, through and out."""

    def __init__(self, engine: GatedEngine, look: Looker, world: PlainWorld, answers: Answers) -> None:
        super().__init__(engine, look, world)
        self._answers = answers

    def _prompt(self, rid: str) -> list[int]:
        pages = self.world.prompts.get(rid)
        if pages is None:
            raise UnableError(f"the world has no prompt for {rid}")
        return [*self.engine.pages.tokens(pages), TAIL]

    def enq(self, word: Word) -> Answer:
        """A request joins the queue, which asks storage at once."""
        (rid,) = word.subjects
        if self.engine.queued(rid) is not None or any(one.rid == rid for one in self.engine.running()):
            return "refused", f"{rid} is in the engine already"
        priority = 0 if self.engine.scheduler.enable_priority_scheduling else None
        self.look.begin_attempt(rid)
        self.engine.stepped.submit(rid, self._prompt(rid), max_new_tokens=OUTPUT, priority=priority)
        self.engine.rest.settle()
        if self.engine.queued(rid) is None:
            return "refused", f"{rid} was turned away: {self.engine.stepped.outputs[rid].finish}"
        return DONE

    def admit(self, word: Word) -> Answer:
        """The scheduler comes to a request and admits it, if it can."""
        (rid,) = word.subjects
        if self.engine.queued(rid) is None:
            return "absent", f"{rid} is not queued"
        if self.engine.scheduler._engine_paused:
            return "absent", "the engine is paused"
        before = self.look.request(rid)
        if rid in self.one_pass([rid], [rid]):
            return DONE
        verdict = self.engine.admission.verdicts.get(rid)
        if verdict is None:
            changed = self.look.request(rid) != before
            return ("absent", "it asks again") if changed else ("refused", "no slot is free")
        return ("refused" if verdict.startswith("the scan said") else "absent"), verdict

    def finish(self, word: Word) -> Answer:
        """A running request is done."""
        (rid,) = word.subjects
        from sglang.srt.managers.schedule_batch import FINISH_LENGTH

        request = self.running(rid)
        request.to_finish = FINISH_LENGTH(length=len(request.output_ids))
        self._decode()
        if any(one.rid == rid for one in self.engine.running()):
            self._decode()
        return DONE

    def _decode(self) -> None:
        self.engine.stepped.hold_decode = False
        try:
            self.engine.one_pass()
        finally:
            self.engine.stepped.hold_decode = True

    def retract(self, word: Word) -> Answer:
        """A running request goes back to the queue."""
        (rid,) = word.subjects
        why = word.facts.get("why", "retracted")
        request, scheduler = self.running(rid), self.engine.scheduler
        if why == "requeued":
            raise UnableError("the optimistic requeue belongs to disaggregated prefill")
        if why == "paused":
            self.pause(word)
            self.resume(word)
            return DONE
        self._merge_last_batch()
        batch = scheduler.running_batch
        place = next(place for place, one in enumerate(batch.reqs) if one is request)
        self.look.begin_attempt(rid)
        batch.release_req(place, len(batch.reqs) - 1)
        batch.filter_batch(keep_indices=[at for at in range(len(batch.reqs)) if at != place])
        batch.batch_is_full = False
        # upstream's own two ways: decode out of memory says so, preemption does not
        if why == "retracted":
            scheduler._add_request_to_queue(request, is_retracted=True)
        else:
            scheduler._add_request_to_queue(request)
        self.engine.stepped._running.discard(rid)
        self.engine.rest.settle()
        return DONE

    def _merge_last_batch(self) -> None:
        """What ran on the last pass joins the running batch, as the next pass would have it."""
        scheduler = self.engine.scheduler
        last, running = scheduler.last_batch, scheduler.running_batch
        if last is None or last is running or not last.forward_mode.is_extend():
            return
        last.filter_batch()
        if not last.is_empty():
            if running.is_empty():
                scheduler.running_batch = last
            else:
                running.merge_batch(last)
        scheduler.last_batch = None

    def abort(self, word: Word) -> Answer:
        """A request leaves."""
        (rid,) = word.subjects
        why = word.facts.get("why", "client")
        queued = self.engine.queued(rid)
        if queued is None and not any(one.rid == rid for one in self.engine.running()):
            return "absent", f"{rid} is neither queued nor running"
        if why == "bootstrap":
            raise UnableError(
                "the bootstrap queue belongs to disaggregated prefill, which this harness does not run"
            )
        if queued is None:
            self.engine.stepped.abort(rid)
            self._decode()
        elif why in ("queue_limit", "priority"):
            self._crowd_out(queued)
        elif why == "timeout":
            self._time_out(queued)
        else:
            self.engine.stepped.abort(rid)
        self.engine.rest.settle()
        return DONE if self.engine.queued(rid) is None else ("absent", f"{rid} is still queued")

    def _use_priorities(self) -> None:
        """From now on requests have priorities, as under --enable-priority-scheduling."""
        scheduler = self.engine.scheduler
        if not scheduler.enable_priority_scheduling:
            scheduler.enable_priority_scheduling = True
            scheduler.policy.enable_priority_scheduling = True
            for one in [*scheduler.waiting_queue, *self.engine.running()]:
                one.priority = 0

    def _crowd_out(self, request: Any) -> None:
        """A more urgent stranger meets a full queue, and the least urgent request has to leave it."""
        scheduler = self.engine.scheduler
        self._use_priorities()
        scheduler.max_queued_requests = len(scheduler.waiting_queue)
        request.priority = -PRIORITY if not scheduler.schedule_low_priority_values_first else PRIORITY
        self.engine.stepped.submit(SPARE, [TAIL, TAIL], max_new_tokens=1, priority=0)
        scheduler.max_queued_requests = None
        self.engine.stepped.abort(SPARE)

    def _time_out(self, request: Any) -> None:
        """The wait in the queue is over its limit, by upstream's own check of it."""
        from sglang.srt.environ import envs

        scheduler = self.engine.scheduler
        poll = getattr(scheduler, "_poll_timeout_aborts", None) or getattr(
            scheduler, "_abort_on_waiting_timeout", None
        )
        if poll is None:
            raise UnableError("this version has no limit on the wait in the queue")
        request.time_stats.wait_queue_entry_time = time.perf_counter() - 2000.0
        with envs.SGLANG_REQ_WAITING_TIMEOUT.override(1000.0):
            found = poll()
            if found:
                scheduler.process_input_requests(found)

    def revoke(self, word: Word) -> Answer:
        """The scan looks at a request that it may not admit: a hold that is no use goes."""
        (rid,) = word.subjects
        before = self.look.request(rid)
        self.one_pass([rid], [])
        after = self.look.request(rid)
        gone = (before["hold"] and not after["hold"]) or (before["question"] and not after["question"])
        return DONE if gone else ("absent", "the scan kept what it has")

    def cut(self, word: Word) -> Answer:
        """The stop policy ends a wait."""
        (rid,) = word.subjects
        if self.world.policy == "wait_complete":
            return "refused", "wait_complete never ends a wait"
        if self.world.policy == "timeout":
            return self.expire(word)
        return self._stop(rid, word.amount)

    def expire(self, word: Word) -> Answer:
        """A deadline passes."""
        (rid,) = word.subjects
        if self.world.policy != "timeout":
            return "refused", f"the policy {self.world.policy} has no deadline"
        request = self.engine.queued(rid)
        if request is None:
            return "absent", f"{rid} is not queued"
        # the first poll that finds the request blocked starts its time
        self.one_pass([rid], [])
        operation = self.look.live(rid)
        wait = getattr(self.engine.tree, "_storage_prefetch_wait", {}).get(key_of(request))
        if wait is not None:
            wait.timeout_s = -1.0
        elif operation is not None:
            operation.start_time -= 1e12
        return self._stop(rid, word.amount)

    def _stop(self, rid: str, pages: int | None) -> Answer:
        operation = self.look.live(rid)
        if operation is None:
            return "absent", f"{rid} waits for nothing"
        if pages and self.look.request(rid)["pages"]:
            self._answers.xfer(Word("xfer", (rid,), amount=pages))
        self.one_pass([rid], [])
        return DONE if self.look.live(rid) is not operation else ("absent", "the policy lets it wait")

    def tick(self, word: Word) -> Answer:
        """Passes that drain, sweep and ask again, and admit nobody."""
        for _ in range(1 if word.amount is None else word.amount):
            self.one_pass([], [])
        return DONE

    def settle(self, word: Word) -> Answer:
        """All gates open, until nothing is left to do."""
        engine = self.engine
        self._answers.give_room_back()
        engine.acks.open = True
        engine.stepped.hold_decode = False
        try:
            for _ in range(64 if word.amount is None else word.amount):
                self._answers.answer_everything()
                self.one_pass(None, None)
                if self.look.idle():
                    break
        finally:
            engine.acks.open = False
            engine.stepped.hold_decode = True
        return DONE

    def flush(self, word: Word) -> Answer:
        """The cache is reset, as for a client."""
        engine = self.engine
        if not engine.scheduler.is_fully_idle(**self._idle_arguments()):
            return "refused", "the cache is not flushed while anything is pending"
        self._answers.give_room_back()
        with engine.threads_ending():
            ok = engine.scheduler.flush_cache()
        return DONE if ok else ("refused", "the engine did not flush")

    def _idle_arguments(self) -> dict[str, bool]:
        # 0.5.20 and older count whoever waits, paused or not
        known = signature(self.engine.scheduler.is_fully_idle).parameters
        return {"ignore_waiting": self.engine.scheduler._engine_paused} if "ignore_waiting" in known else {}

    def pause(self, word: Word) -> Answer:
        """Generation pauses: what runs goes back to the queue."""
        from sglang.srt.managers.io_struct import PauseGenerationReqInput

        for one in self.engine.running():
            self.look.begin_attempt(one.rid)
            self.engine.stepped._running.discard(one.rid)
        self.engine.scheduler.pause_generation(PauseGenerationReqInput(mode="retract"))
        self.engine.rest.settle()
        return DONE

    def resume(self, word: Word) -> Answer:
        """Generation goes on."""
        from sglang.srt.managers.io_struct import ContinueGenerationReqInput

        self.engine.scheduler.continue_generation(ContinueGenerationReqInput(torch_empty_cache=False))
        return DONE
