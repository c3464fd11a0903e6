"""The shipped runtime as a target: a lifecycle embedded in a small engine whose storage answers when it is told to."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hicache_fsm.runtime import HiCacheLifecycle, IllegalTransition
from hicache_fsm.runtime.errors import WrongAnswer
from hicache_fsm.spec import Spec, load_spec
from hicache_fsm.suite.language import WORDS
from hicache_fsm.suite.protocol import Answer, CacheUnderTest, Event, Observed, Reply, World
from hicache_fsm.suite.targets.engine import DONE
from hicache_fsm.suite.targets.pools import by_pool, named
from hicache_fsm.suite.targets.queueing import Queueing
from hicache_fsm.suite.targets.ranks import ranked
from hicache_fsm.suite.targets.runtime_view import observe

TOLD: Final = frozenset(name for name, word in WORDS.items() if word.told) | {"alloc", "revoke"}
"""Words that may ask what happened since the event before."""

PASSES: Final = 64
"""How many passes `settle` takes at most, unless it says."""


@dataclass(frozen=True, slots=True)
class RuntimeTarget:
    """Builds lifecycles under a profile.

    `spec` None is the shipped one; `lifecycle` may stand in for the class, and `monitor` switches its own monitor on.
    """

    profile: str = "recommended"
    spec: Spec | None = None
    lifecycle: Callable[..., HiCacheLifecycle] = HiCacheLifecycle
    monitor: bool = False
    name: str = "runtime"

    def build(self, world: World) -> CacheUnderTest:
        """A fresh cache.  Raises UnsupportedError for a world or a profile that makes no lifecycle."""
        if world.ranks == 1:
            return RuntimeCache(self, world)
        profile = (self.spec or load_spec()).profiles.get(self.profile)
        agreed = profile is None or profile.constants.agreed_drains
        return ranked(self.name, lambda: RuntimeCache(self, world), world.ranks, agreed=agreed)


class RuntimeCache(Queueing):
    """The rest of the words: the device tree, storage, the engine as a whole; a method is a word."""

    def __init__(self, target: RuntimeTarget, world: World) -> None:
        spec = target.spec or load_spec()
        super().__init__(world, target.profile, spec, target.lifecycle, monitor=target.monitor)
        self.name = target.name
        self._loads: dict[str, str] = {}

    def drive(self, event: Event) -> Reply:
        """Bring the event about.  What the lifecycle raises beyond a refusal is passed on."""
        if event.name in TOLD:
            if (event.name, event.subjects[0]) in self.told:
                return Reply(Answer.SEEN)
        else:
            self.told.clear()
        word = WORDS.get(event.name)
        if word is None:
            return Reply(Answer.INEXPRESSIBLE, f"the runtime has no {event.name}")
        if word.takes == "request" and event.name != "enq" and event.subjects[0] not in self.requests:
            return Reply(Answer.ABSENT, f"{event.subjects[0]} never arrived")
        act: Callable[[Event], Reply] | None = getattr(self, f"on_{event.name}", None)
        if act is None:
            return Reply(Answer.ABSENT, "it has not happened")
        try:
            return act(event)
        except IllegalTransition as refused:
            return Reply(Answer.REFUSED, refused.reason)
        except WrongAnswer as refused:
            return Reply(Answer.REFUSED, str(refused))

    def observe(self) -> Observed:
        """The state now."""
        return observe(self)

    def close(self) -> None:
        """Nothing outlives a run."""

    def post(self, answer: Any) -> None:
        """Hand an answer over as an I/O thread does, for the next pass that drains it."""
        self.life.post(answer)

    def on_insert(self, event: Event) -> Reply:
        if self._loads.keys() & set(event.subjects):
            return Reply(Answer.REFUSED, "a load-back is bringing it")
        missing = self.tree.add(event.subjects)
        return Reply(Answer.REFUSED, f"what {missing} hangs on is not on the device") if missing else DONE

    def on_evict(self, event: Event) -> Reply:
        if event.node not in self.tree.resident:
            return Reply(Answer.ABSENT, f"{event.node} is not on the device")
        gone = self.tree.below(event.node)
        running = {page for each in self.requests.values() if self.runs(each) for page in each.prompt}
        if self.tree.locked(event.node) or running.intersection(gone) or self._loads.keys() & set(gone):
            return Reply(Answer.REFUSED, f"{event.node} is held")
        for page in gone:
            self.life.evict(page)
            self.tree.resident.discard(page)
        return DONE

    def on_split(self, event: Event) -> Reply:
        here = event.node in self.tree.resident
        return DONE if here else Reply(Answer.ABSENT, f"{event.node} is not on the device")

    def on_load(self, event: Event) -> Reply:
        if event.node in self.tree.resident and event.node in self.tree.swa and event.node not in self._loads:
            return Reply(Answer.ABSENT, f"{event.node} is on the device")
        if not self.life.load(event.node, event.facts["by"]):
            return Reply(Answer.REFUSED, f"{event.node} is claimed by another load-back")
        self._loads[event.node] = event.facts["by"]
        return DONE

    def on_loaded(self, event: Event) -> Reply:
        self.life.loaded_back(event.node, event.facts["by"])
        self._loads.pop(event.node, None)
        self.tree.add([event.node])
        return DONE

    def on_tombstone(self, event: Event) -> Reply:
        if event.node not in self.tree.resident:
            return Reply(Answer.ABSENT, f"{event.node} is not on the device")
        if self.tree.locked(event.node):
            return Reply(Answer.REFUSED, f"{event.node} is held")
        self.life.tombstone(event.node)
        return DONE

    def on_write(self, event: Event) -> Reply:
        if not self.life.attached:
            return Reply(Answer.REFUSED, "no storage is attached")
        launched: list[str] = []
        for pool, pages in by_pool(event.subjects).items():
            launched += named(pool, self.life.write(pool, pages))
        if not launched:
            return Reply(Answer.REFUSED, "believed stored, or being written")
        self.storage.writing.update(launched)
        return DONE

    def on_wack(self, event: Event) -> Reply:
        pages = [page for page in event.subjects if page in self.storage.writing]
        if len(pages) < len(event.subjects):
            return Reply(Answer.ABSENT, "no such write is in flight")
        self.storage.writing.difference_update(pages)
        failed = event.facts.get("ok") == "no"
        if not failed:
            self.storage.add(pages)
        for pool, names in by_pool(pages).items():
            (self.life.write_failed if failed else self.life.stored)(pool, names)
        return DONE

    def on_store(self, event: Event) -> Reply:
        self.storage.add(event.subjects)
        return DONE

    def on_drop(self, event: Event) -> Reply:
        self.storage.lose(event.subjects)
        return DONE

    def on_clear(self, event: Event) -> Reply:
        self.storage.empty()
        self.life.clear()
        return DONE

    def on_detach(self, event: Event) -> Reply:
        if not self.life.attached:
            return Reply(Answer.REFUSED, "no storage is attached")
        if why := self.bars_reset("detach"):
            return Reply(Answer.REFUSED, why)
        self.life.detach()
        self.storage.empty()
        return DONE

    def on_attach(self, event: Event) -> Reply:
        if self.life.attached:
            return Reply(Answer.REFUSED, "storage is attached")
        self.life.attach()
        return DONE

    def on_flush(self, event: Event) -> Reply:
        if any(self.runs(each) for each in self.requests.values()):
            return Reply(Answer.REFUSED, "requests are running")
        if why := self.bars_reset("flush"):
            return Reply(Answer.REFUSED, why)
        self.life.flush()
        for page in sorted(self.tree.resident):
            self.on_evict(Event("evict", node=page))
        return DONE

    def on_limit(self, event: Event) -> Reply:
        self.limit = event.amount or 0
        return DONE

    def on_tick(self, event: Event) -> Reply:
        for _ in range(1 if event.amount is None else event.amount):
            self._pass()
        return DONE

    def _pass(self) -> None:
        """One scheduling pass: the sweep's questions, then parked hits in order until one has no room."""
        queue = [each for each in self.requests.values() if self.queues(each)]
        offered = self.life.begin_pass(head=queue[0].key if queue else None)
        for key in offered:
            request = self.requests[key.rid]
            if request.key == key:
                self.ask(request)
        for request in queue:
            if self.state(request) == "parked":
                reply = self.on_alloc(Event("alloc", (request.rid,)))
                # Who waits for the pin budget only keeps nobody behind it from host pages.
                if self.state(request) == "parked" and "pin_cap" not in reply.why:
                    break

    def on_settle(self, event: Event) -> Reply:
        for _ in range(PASSES if event.amount is None else event.amount):
            for request in list(self.requests.values()):
                for number in range(1, len(request.questions) + 1):
                    owed = Event("answer", (request.rid,), facts={"q": str(number)})
                    while self.on_answer(owed).answer is Answer.DONE:
                        pass
                self.on_ack(Event("ack", (request.rid,)))
                if self.runs(request):
                    self.on_finish(Event("finish", (request.rid,)))
            if self.storage.writing:
                self.on_wack(Event("wack", tuple(sorted(self.storage.writing))))
            if self.life.idle:
                break
            self._pass()
            for request in [each for each in self.requests.values() if self.queues(each)]:
                self.on_admit(Event("admit", (request.rid,)))
        return DONE
