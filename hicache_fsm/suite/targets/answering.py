"""Storage's answers to a driven lifecycle, whenever and in whatever order the sequence wants them."""

from dataclasses import replace

from hicache_fsm.runtime.words import BELOW_THRESHOLD
from hicache_fsm.suite.protocol import Answer, Event, Reply
from hicache_fsm.suite.targets.engine import DONE, Asked, Engine, Request

NOBODY = Reply(Answer.ABSENT, "no such question is out")


class Answering(Engine):
    """The words by which storage and its I/O reach the engine; a method is a word."""

    def on_hit(self, event: Event) -> Reply:
        request, asked = self.question(event)
        if asked is None or self.reading(asked.number):
            return NOBODY
        span = request.prompt[asked.base :]
        stored = self.storage.leading(span)
        found = stored if event.amount is None else event.amount
        if found > stored:
            return Reply(Answer.REFUSED, f"storage has {stored} pages of it")
        if found < self.world.threshold:
            return self._missed(request, asked, "")
        if self.live(request) != asked.number:
            self.life.hit(request.key, asked.number, found, len(span))
            return DONE
        if self.state(request) not in ("probing", "retrying"):
            self.life.hit(request.key, asked.number, found, len(span))  # which it refuses
        self.heard(span, found)
        return self._found(request, asked, found, event)

    def _found(self, request: Request, asked: Asked, found: int, event: Event) -> Reply:
        """A live question found pages: its base may have moved since."""
        depth = self.tree.depth(request.prompt)
        begin = depth + self.held(request)
        if begin < asked.base:
            return self._lost(request)
        found -= begin - asked.base
        asked.base = begin
        anchor = self.rebase(request, depth)
        if found < self.world.threshold:
            return self.drop(request, "device_covered")
        if found > self.world.host and self.world.mode == "buffer_only":
            return self.drop(request, "oversize")
        room, why = self.room(request, found, anchor)
        if event.facts.get("room") == "no":
            room, why = 0, event.facts.get("why", "host_capacity")
            if why == "pin_cap" and self.early:
                return Reply(Answer.REFUSED, "nobody waits for the pin budget where pins are taken early")
        wanted = len(request.prompt) - begin
        reason = "" if room else why
        self.life.hit(request.key, asked.number, room or found, wanted, bool(room), reason, anchor)
        match self.state(request):
            case "transferring":
                self.tell("alloc", request)
            case "parked":
                self.tell("park", request)
        return DONE

    def on_miss(self, event: Event) -> Reply:
        request, asked = self.question(event)
        if asked is None or self.reading(asked.number):
            return NOBODY
        return self._missed(request, asked, event.facts.get("why", ""))

    def on_xfer(self, event: Event) -> Reply:
        request, asked = self.question(event)
        owned = self.reading(asked.number) if asked else 0
        if asked is None or not 0 < (event.amount or 0) <= owned:
            return Reply(Answer.REFUSED, f"{request.rid} reads {owned} pages")
        self.slots.arrived(("op", asked.number), event.amount)
        return DONE

    def on_done(self, event: Event) -> Reply:
        request, asked = self.question(event)
        if asked is None:
            return NOBODY
        owned = self.reading(asked.number)
        pages = owned if event.amount is None else event.amount
        if short := self.short(request, asked, min(pages, owned)):
            return Reply(Answer.REFUSED, f"{short} is not stored: the read is discarded")
        if owned and not pages:
            return self._failed(request, asked, "nothing_usable")
        if pages <= owned:
            self.slots.arrived(("op", asked.number))
        live = self.live(request) == asked.number
        self.life.loaded(request.key, asked.number, pages)
        if live:
            if asked.storage == self.storage.emptied:
                self.life.confirm("kv", request.prompt[asked.base : asked.base + pages])
            self.tell("stage", request)
        return DONE

    def on_fail(self, event: Event) -> Reply:
        request, asked = self.question(event)
        return self._failed(request, asked, event.facts.get("why", "read_error")) if asked else NOBODY

    def on_discard(self, event: Event) -> Reply:
        request, asked = self.question(event)
        pages = self.reading(asked.number) if asked else 0
        if asked is None or not pages:
            return Reply(Answer.REFUSED, "nothing is being read")
        live = self.live(request) == asked.number
        chain = request.prompt[asked.base : asked.base + pages]
        self._failed(request, asked, "discarded")
        pools = ("kv",) if self.world.layout == "dense" else ("kv", self.world.layout)
        for pool in pools if live else ():
            self.life.discard(pool, chain, event.amount or 0, [])
        return DONE

    def on_answer(self, event: Event) -> Reply:
        request, asked = self.question(event)
        op = self.life._core.ledger.operations.get(asked.number) if asked else None
        if asked is None or op is None:
            return NOBODY
        if asked.number == self.live(request) and self.state(request) == "parked":
            return Reply(Answer.ABSENT, "its hit waits for room")
        event = replace(event, amount=None)
        if not op.pages:
            return self.on_hit(event)
        return self.on_discard(event) if self.short(request, asked, op.pages) else self.on_done(event)

    def on_alloc(self, event: Event) -> Reply:
        request, asked = self.question(event)
        if asked is None or self.state(request) != "parked":
            return Reply(Answer.ABSENT, "no hit waits for room")
        depth = self.tree.depth(request.prompt)
        if depth + self.held(request) < asked.base:
            self._lost(request)
            return Reply(Answer.ABSENT, "its base on the device is gone")
        op = self.life._core.ledger.operations[asked.number]
        anchor = self.rebase(request, depth)
        room, why = self.room(request, min(op.tokens, op.wanted), anchor)
        if not room or not self.life.unparked(request.key, anchor):
            return Reply(Answer.ABSENT, f"no room: {why}")
        self.tell("alloc", request)
        return DONE

    def on_cut(self, event: Event) -> Reply:
        return self.stop(self.of(event), event.amount or 0, deadline=False)

    def on_expire(self, event: Event) -> Reply:
        return self.stop(self.of(event), event.amount or 0, deadline=True)

    def stop(self, request: Request, read: int, *, deadline: bool) -> Reply:
        """The wait ends, with so many pages read."""
        owned = self.reading(self.live(request))
        if read > max(owned - 1, 0):
            return Reply(Answer.REFUSED, f"{request.rid} reads {owned} pages and cannot be cut after {read}")
        self.slots.arrived(("op", self.live(request)), read)
        (self.life.expire if deadline else self.life.cut)(request.key, read)
        return DONE

    def question(self, event: Event) -> tuple[Request, Asked | None]:
        """The question that the event is about: the one named, else the request's live one."""
        request = self.of(event)
        if "q" in event.facts:
            number = int(event.facts["q"])
            return request, request.questions[number - 1] if number <= len(request.questions) else None
        live = self.live(request)
        return request, next((each for each in request.questions if each.number == live), None)

    def _lost(self, request: Request) -> Reply:
        self.life.lose_anchor(request.key)
        self.tell("lose", request)
        return DONE

    def _missed(self, request: Request, asked: Asked, why: str) -> Reply:
        live = self.live(request) == asked.number
        self.life.missed(request.key, asked.number, why or BELOW_THRESHOLD)
        if live:
            self.heard(request.prompt[asked.base :], 0)
        return DONE

    def _failed(self, request: Request, asked: Asked, why: str) -> Reply:
        self.slots.arrived(("op", asked.number))
        self.life.failed(request.key, asked.number, why)
        return DONE
