"""The model's admission system as a cache under test: the queue's words and the world's."""

from hicache_fsm.suite.protocol import Answer, Event, Reply
from hicache_fsm.suite.targets.model_requests import ADMISSIBLE, ATTEMPTS, DONE, QUEUED, Requests, not_said

PENDING = "the cache is not reset while anything is pending"


class Admission(Requests):
    """The rest of the words; a method is a word."""

    def on_admit(self, event: Event) -> Reply:
        rid = event.subjects[0]
        if self._state(rid) not in QUEUED:
            return Reply(Answer.REFUSED, f"{rid} does not queue")
        if self._paused:
            return Reply(Answer.ABSENT, "paused")
        if self._world.policy == "best_effort" and self._state(rid) not in ADMISSIBLE:
            self._stop("cut", rid, 0)
        if self._state(rid) not in ADMISSIBLE:
            return Reply(Answer.ABSENT, "it waits for storage")
        if self._lost_base(rid):
            return Reply(Answer.ABSENT, "its base on the device is gone")
        holds = self._of(rid, "hold")
        if not self._admitted(rid):
            return Reply(Answer.REFUSED, "no room on the device")
        if holds:
            self.told.add(("consume", rid))
        return DONE

    def _admitted(self, rid: str) -> bool:
        return self.take("admit", rid)

    def _lost_base(self, rid: str) -> bool:
        anchored = self._model.state["anchored"]
        if anchored >= self._matched[rid] or not self._base:
            return False
        self._matched[rid] = anchored
        self.told.add(("lose", rid))
        if self._of(rid, "hold"):
            return self.take("shrink", rid) and self._rules.requeries_lost_match
        self.take("lose_match", rid, self._decided(""))
        return self._state(rid) not in ADMISSIBLE

    def on_finish(self, event: Event) -> Reply:
        rid = event.subjects[0]
        return DONE if self.take("finish", rid) else Reply(Answer.REFUSED, f"{rid} does not run")

    def on_retract(self, event: Event) -> Reply:
        rid = event.subjects[0]
        if self._state(rid) == "running" and self._of(rid, "attempt") == ATTEMPTS - 1:
            return not_said("third attempt")
        if len(self._order) > 1 + self._order[rid] and any(
            self._state(other) in QUEUED for other in self._order if self._order[other] > self._order[rid]
        ):
            return not_said("request that goes back behind others")
        if not self.take("retract", rid, self._decided("")):
            return Reply(Answer.REFUSED, f"{rid} does not run")
        self._matched[rid] = self._model.state["anchored"]
        return DONE

    def on_abort(self, event: Event) -> Reply:
        rid = event.subjects[0]
        return DONE if self.take("abort", rid) else Reply(Answer.REFUSED, f"{rid} does not queue")

    def on_abandon(self, event: Event) -> Reply:
        rid = event.subjects[0]
        return DONE if self.take("abandon", rid) else Reply(Answer.REFUSED, f"{rid} does not queue")

    def on_ack(self, event: Event) -> Reply:
        done = self.take("filled", event.subjects[0])
        return DONE if done else Reply(Answer.ABSENT, "nothing is being copied to the device")

    def on_insert(self, event: Event) -> Reply:
        base = next(iter(self._world.prompts.values()))[: self._base]
        if not set(event.subjects) <= set(base):
            return not_said("page of the span on the device")
        self.take("insert", None)
        return DONE

    def on_evict(self, event: Event) -> Reply:
        base = next(iter(self._world.prompts.values()))[: self._base]
        if event.node not in base or not self._model.state["anchored"]:
            return Reply(Answer.ABSENT, f"{event.node} is not on the device")
        return DONE if self.take("evict", None) else Reply(Answer.REFUSED, f"{event.node} is held")

    def on_store(self, event: Event) -> Reply:
        self._stored |= set(event.subjects)
        while self._model.state["stored"] < self._leading():
            self.take("wack", None)
        return DONE

    def on_wack(self, event: Event) -> Reply:
        return DONE if event.facts.get("ok") == "no" else self.on_store(event)

    def on_write(self, event: Event) -> Reply:
        return DONE

    def on_detach(self, event: Event) -> Reply:
        if not self.take("detach", None) and (self._waits or self._model.state["stored"]):
            return Reply(Answer.REFUSED, PENDING)
        self._stored.clear()
        self._attached = False
        return DONE

    def on_attach(self, event: Event) -> Reply:
        was, self._attached = self._attached, True
        return Reply(Answer.REFUSED, "storage is attached") if was else DONE

    def on_flush(self, event: Event) -> Reply:
        if any(self._state(rid) == "running" for rid in self._order):
            return Reply(Answer.REFUSED, "requests are running")
        ignored = self._rules.resets_under != "pause" or self._paused
        if self._waits and not (ignored and self.take("flush", None)):
            return Reply(Answer.REFUSED, PENDING)
        return DONE

    @property
    def _waits(self) -> bool:
        return any(self._state(rid) in QUEUED for rid in self._order)

    def on_pause(self, event: Event) -> Reply:
        self._paused = True
        for rid in [rid for rid in self._order if self._state(rid) == "running"]:
            if (reply := self.on_retract(Event("retract", (rid,)))).answer is not Answer.DONE:
                return reply
        return DONE

    def on_resume(self, event: Event) -> Reply:
        self._paused = False
        return DONE

    def on_tick(self, event: Event) -> Reply:
        for _ in range(1 if event.amount is None else event.amount):
            self._now += 1
            self.take("tick", None, self._decided(""))
            for rid in [rid for rid in self._order if self._state(rid) == "parked"]:
                self.on_alloc(Event("alloc", (rid,)))
                if self._state(rid) == "parked":
                    break
        return DONE

    def on_settle(self, event: Event) -> Reply:
        for _ in range(64 if event.amount is None else event.amount):
            for rid in self._order:
                for word in ("orphan_end", "filled", "finish"):
                    self.take(word, rid)
                while self.on_answer(Event("answer", (rid,))).answer is Answer.DONE:
                    pass
            if self.observe().idle:
                break
            self.on_tick(Event("tick"))
            for rid in [rid for rid in self._order if self._state(rid) in QUEUED]:
                self.on_admit(Event("admit", (rid,)))
        return DONE
