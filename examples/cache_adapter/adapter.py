"""The adapter: what the suite's words do to the toy cache, and what the toy cache shows of itself."""

from collections.abc import Callable
from dataclasses import dataclass

from toy_cache import Job, ToyCache

from hicache_fsm.suite.protocol import (
    Answer,
    CacheUnderTest,
    Event,
    Observed,
    Reply,
    RequestView,
    UnsupportedError,
    World,
)

DONE = Reply(Answer.DONE)


@dataclass(frozen=True)
class ToyTarget:
    """Builds toy caches."""

    name: str = "toy"
    leaky: bool = False

    def build(self, world: World) -> CacheUnderTest:
        """A fresh cache of that size."""
        if world.layout != "dense" or world.ranks > 1 or world.device:
            raise UnsupportedError("the toy cache has neither a device tree nor auxiliary pools nor ranks")
        return ToyUnderTest(world, leaky=self.leaky)


class ToyUnderTest:
    """One toy cache, with a storage that answers when it is told to.  A method `on_word` is that word."""

    name = "toy"

    def __init__(self, world: World, leaky: bool) -> None:
        self.world = world
        self.cache = ToyCache(world.host, world.interval, world.max_attempts, leaky)
        self.stored = set(world.storage)

    def drive(self, event: Event) -> Reply:
        """Bring the event about."""
        act: Callable[[Event], bool] | None = getattr(self, f"on_{event.name}", None)
        if act is None:
            return Reply(Answer.INEXPRESSIBLE, f"the toy cache has no {event.name}")
        newcomers = self.world.prompts.keys() - self.cache.jobs.keys()
        if event.name != "enq" and newcomers.intersection(event.subjects):
            return Reply(Answer.ABSENT, f"{event.subjects[0]} never came")
        return DONE if act(event) else Reply(Answer.REFUSED, "not now")

    def observe(self) -> Observed:
        """The state now."""
        cache = self.cache
        tickets = cache.tickets.values()
        return Observed(
            now=cache.now,
            requests={rid: self._view(rid) for rid in self.world.prompts},
            asked={rid: cache.asked.count(rid) for rid in cache.jobs},
            occupied=cache.host - cache.free,
            host_free=cache.free,
            orphans=sum(ticket.job is None for ticket in tickets),
            orphan_pages=sum(ticket.pages for ticket in tickets if ticket.job is None),
            filling=0,
            stored=frozenset(self.stored),
            idle=cache.idle(),
        )

    def close(self) -> None:
        """Nothing outlives a run."""

    def _view(self, rid: str) -> RequestView:
        job = self.cache.jobs.get(rid)
        if job is None:
            return RequestView()
        return RequestView(
            self._state(job),
            attempt=job.turn,
            marker=job.fresh_miss,
            spent=job.retries,
            question=job.ticket is not None,
            pages=job.ticket.pages if job.ticket else 0,
            hold=job.ready,
        )

    def _state(self, job: Job) -> str:
        """The toy's phases in the words of spec/prefetch.toml."""
        match job.phase:
            case "asking":
                return "retrying" if job.retries else "probing"
            case "waiting" if job.fresh_miss:
                return "missed"
            case "waiting" if job.ask_at is not None:
                return "pending"
        words = {"waiting": "queued", "reading": "transferring", "ready": "loaded", "done": "finished"}
        return {**words, "cancelled": "aborted"}.get(job.phase, job.phase)

    def _ticket(self, event: Event) -> int:
        """The question that the event answers: the one named, counted over the request's own, or its live one."""
        rid = event.subjects[0]
        own = [number for number, name in enumerate(self.cache.asked, 1) if name == rid]
        if "q" in event.facts:
            nth = int(event.facts["q"])
            return own[nth - 1] if nth <= len(own) else 0
        ticket = self.cache.jobs[rid].ticket
        return ticket.number if ticket else 0

    def _found(self, rid: str) -> int:
        prompt = self.world.prompts[rid]
        found = next((count for count, page in enumerate(prompt) if page not in self.stored), len(prompt))
        return found if found >= self.world.threshold else 0

    def on_enq(self, event: Event) -> bool:
        return self.cache.submit(event.subjects[0], len(self.world.prompts[event.subjects[0]]))

    def on_hit(self, event: Event) -> bool:
        found = self._found(event.subjects[0])
        wanted = found if event.amount is None else event.amount
        return 0 < wanted <= found and self.cache.answer(self._ticket(event), wanted)

    def on_miss(self, event: Event) -> bool:
        return self.cache.answer(self._ticket(event), 0)

    def on_done(self, event: Event) -> bool:
        ticket = self.cache.tickets.get(self._ticket(event))
        return ticket is not None and self.cache.read(
            ticket.number, ticket.pages if event.amount is None else event.amount
        )

    def on_fail(self, event: Event) -> bool:
        return self.cache.read(self._ticket(event), 0)

    def on_answer(self, event: Event) -> bool:
        ticket = self.cache.tickets.get(self._ticket(event))
        if ticket is None:
            return False
        if ticket.pages:
            return self.on_done(event)
        return self.cache.answer(ticket.number, self._found(event.subjects[0]))

    def on_admit(self, event: Event) -> bool:
        return self.cache.schedule(event.subjects[0])

    def on_finish(self, event: Event) -> bool:
        return self.cache.finish(event.subjects[0])

    def on_retract(self, event: Event) -> bool:
        return self.cache.preempt(event.subjects[0])

    def on_abort(self, event: Event) -> bool:
        return self.cache.cancel(event.subjects[0])

    def on_tick(self, event: Event) -> bool:
        for _ in range(event.amount or 1):
            self.cache.step()
        return True

    def on_flush(self, event: Event) -> bool:
        self.cache.reset()
        return True

    def on_detach(self, event: Event) -> bool:
        was, self.cache.online = self.cache.online, False
        self.cache.reset()
        self.stored.clear()
        return was

    def on_attach(self, event: Event) -> bool:
        was, self.cache.online = self.cache.online, True
        return not was

    def on_store(self, event: Event) -> bool:
        self.stored.update(event.subjects)
        return True

    def on_drop(self, event: Event) -> bool:
        self.stored.difference_update(event.subjects)
        return True

    def on_settle(self, event: Event) -> bool:
        for _ in range(event.amount or 64):
            for number, name in enumerate(self.cache.asked, 1):
                self.cache.answer(number, self._found(name))
                ticket = self.cache.tickets.get(number)
                self.cache.read(number, ticket.pages if ticket else 0)
            self.cache.step()
            for name in self.cache.jobs:
                self.cache.finish(name)
                self.cache.schedule(name)
        return True


def make() -> ToyTarget:
    """The target: `pytest --hicache-target adapter:make`."""
    return ToyTarget()


def leaky() -> ToyTarget:
    """The same with its planted fault."""
    return ToyTarget("leaky toy", leaky=True)
