"""How requests come, are admitted and leave, in the small engine around a driven lifecycle."""

from hicache_fsm.runtime import AttemptKey
from hicache_fsm.suite.protocol import Answer, Event, Reply
from hicache_fsm.suite.targets.answering import Answering
from hicache_fsm.suite.targets.engine import ADMISSIBLE, DONE, Request

WAITS = frozenset({"probing", "retrying", "parked", "transferring"})
"""States that the best-effort policy ends when the scheduler comes to them."""


class Queueing(Answering):
    """The words of the queue; a method is a word."""

    def on_enq(self, event: Event) -> Reply:
        rid = event.subjects[0]
        prompt = self.world.prompts.get(rid)
        if prompt is None:
            return Reply(Answer.INEXPRESSIBLE, f"{rid} has no prompt in this world")
        key = self.life.enqueue(rid, len(prompt))
        known = self.requests.pop(rid, None)
        request = Request(rid, prompt, key, questions=known.questions if known else [])
        self.requests[rid] = request
        self.ask(request, event.facts.get("why", ""))
        return DONE

    def on_issue(self, event: Event) -> Reply:
        request = self.of(event)
        if self.state(request) != "queued":
            return Reply(Answer.ABSENT, "no question went out")
        why = self.ask(request)
        return Reply(Answer.REFUSED, why) if why else DONE

    def on_admit(self, event: Event) -> Reply:
        request = self.of(event)
        if not self.queues(request):
            return Reply(Answer.REFUSED, f"{request.rid} does not queue")
        if self.paused:
            return Reply(Answer.ABSENT, "paused")
        if self.world.policy == "best_effort" and self.state(request) in WAITS:
            self.stop(request, 0, deadline=False)
        if self.state(request) not in ADMISSIBLE:
            return Reply(Answer.ABSENT, "it waits for storage")
        if self._lost_base(request):
            return Reply(Answer.ABSENT, "its base on the device is gone")
        if blocker := self._blocker(request):
            before = "" if blocker is request else f": {blocker.rid} is before it and does not fit"
            return Reply(Answer.REFUSED, f"no room on the device{before}")
        self._drop_covered(request)
        held = self.held(request)
        self.life.admit(request.key)
        if held:
            self.tell("consume", request)
        return DONE

    def _lost_base(self, request: Request) -> bool:
        """Whether the device holds less of the prefix than when it was matched, and that keeps the request back."""
        depth = self.tree.depth(request.prompt)
        if depth >= request.base:
            return False
        self.tell("lose", request)
        if self.held(request):
            self.rebase(request, depth)
            self.life.shrink(request.key)
            # Who asks for no lost match admits it without its hold (0.5.19).
            return self.life.settings.constants.requeries_lost_match
        if self.state(request) == "exhausted":
            return False
        self.ask(request, lost=True)
        return self.state(request) not in ADMISSIBLE

    def _drop_covered(self, request: Request) -> None:
        """A hold that the device has by now is not copied to it (#31902)."""
        held = self.held(request)
        if (
            held
            and self.state(request) == "loaded"
            and self.tree.depth(request.prompt) >= request.base + held
        ):
            self.drop(request, "device_covered")

    def _blocker(self, request: Request) -> Request | None:
        """The first in the queue, up to the request itself, that the scheduler would admit and that does not fit."""
        for each in self.requests.values():
            if self.queues(each) and self.state(each) in ADMISSIBLE and not self.fits(each):
                return each
            if each is request:
                break
        return None

    def on_finish(self, event: Event) -> Reply:
        request = self.of(event)
        self.life.finish(request.key)
        self.tree.add(request.prompt)
        return DONE

    def on_retract(self, event: Event) -> Reply:
        self.retract(self.of(event), event.facts.get("why", "retracted"))
        return DONE

    def retract(self, request: Request, why: str) -> None:
        """A running request queues again, behind those that queue, and asks at once for what the device has not.

        What ran leaves its prompt on the device.
        """
        key = self.life.retract(request.key, why)
        if key is not None:
            request.key = key
            self.tree.add(request.prompt)
            self.requests[request.rid] = self.requests.pop(request.rid)
            self.ask(request)

    def on_abort(self, event: Event) -> Reply:
        self.life.abort(self.of(event).key, event.facts.get("why", "client"))
        return DONE

    def on_abandon(self, event: Event) -> Reply:
        self.life.abandon(self.of(event).key)
        return DONE

    def on_ack(self, event: Event) -> Reply:
        request = self.of(event)
        keys = (AttemptKey(request.rid, attempt) for attempt in range(request.key.attempt + 1))
        given = sum(self.slots.give(("fill", key)) for key in keys)
        return DONE if given else Reply(Answer.ABSENT, "nothing is being copied to the device")

    def on_revoke(self, event: Event) -> Reply:
        return self.drop(self.of(event), event.facts.get("why", "device_covered"))

    def on_pin(self, event: Event) -> Reply:
        held = self.of(event).key in self.pools.locked
        return Reply(Answer.SEEN) if held else Reply(Answer.ABSENT, "its base is not pinned")

    def on_unpin(self, event: Event) -> Reply:
        held = self.of(event).key in self.pools.locked
        return Reply(Answer.ABSENT, "its base is pinned") if held else Reply(Answer.SEEN)

    def on_pause(self, event: Event) -> Reply:
        self.paused = True
        for request in [each for each in self.requests.values() if self.runs(each)]:
            self.retract(request, "paused")
        return DONE

    def on_resume(self, event: Event) -> Reply:
        was, self.paused = self.paused, False
        return DONE if was else Reply(Answer.REFUSED, "not paused")
