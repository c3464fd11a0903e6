"""What an engine around the lifecycle decides by itself: what to ask, where a base is, whether there is room."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hicache_fsm.runtime import Anchor, AttemptKey, HiCacheLifecycle
from hicache_fsm.runtime.words import HOST_CAPACITY, RATE_LIMITED, TOO_SHORT
from hicache_fsm.spec import Spec, set_constant
from hicache_fsm.suite.protocol import Answer, Event, Reply, UnsupportedError, World
from hicache_fsm.suite.targets.pools import DeviceTree, HostSlots, Pools, Storage

DONE: Final = Reply(Answer.DONE)

ADMISSIBLE: Final = frozenset({"queued", "missed", "pending", "exhausted", "loaded"})
"""States in which the scheduler may admit; in the others a request waits for storage."""


@dataclass(slots=True)
class Asked:
    """A question that went out: the operation, where its span begins in the prompt, and to which storage.

    The span begins behind what the device held then and what is staged already.
    """

    number: int
    base: int
    storage: int


@dataclass(slots=True)
class Request:
    """One request id: its newest attempt, and every question that went out for it.

    `base` is the number of leading pages that the device held when the request was matched last, `node` the page
    that its span hung on last.
    """

    rid: str
    prompt: Sequence[str]
    key: AttemptKey
    base: int = 0
    node: str = ""
    questions: list[Asked] = field(default_factory=list)


class Engine:
    """One lifecycle with its pools, and the decisions that are an engine's; counts are pages."""

    def __init__(
        self,
        world: World,
        profile: str,
        spec: Spec,
        lifecycle: Callable[..., HiCacheLifecycle],
        *,
        monitor: bool,
    ) -> None:
        """Raises UnsupportedError for a world or a profile that makes no lifecycle."""
        self.world = world
        self.slots = HostSlots(world.host)
        self.tree = DeviceTree(world.prompts.values(), world.device)
        self.storage = Storage(set(world.storage))
        self.pools = Pools(self.slots, self.tree, self.storage)
        try:
            self.life = lifecycle(
                profile,
                pool_tokens=world.pool,
                max_context_len=world.context,
                host_tokens=world.host,
                mode="buffer_only" if world.mode == "buffer_only" else "cache",
                interval=world.interval,
                max_attempts=world.max_attempts,
                executor=self.pools,
                monitor=monitor,
                spec=set_constant(spec, profile, pin_fraction=world.cap_fraction),
            )
        except ValueError as error:
            raise UnsupportedError(str(error)) from error
        self.requests: dict[str, Request] = {}
        self.limit = world.host
        self.early = self.life.settings.constants.pins_early
        self.paused = False
        self.told: set[tuple[str, str]] = set()

    def of(self, event: Event) -> Request:
        """The request that the event concerns."""
        return self.requests[event.subjects[0]]

    def state(self, request: Request) -> str:
        """The state of its newest attempt."""
        return self.life.state(request.key) or "absent"

    def queues(self, request: Request) -> bool:
        """Whether it waits for admission."""
        return request.key in self.life._core.queue

    def runs(self, request: Request) -> bool:
        """Whether it was admitted and is not done."""
        return request.key in self.life._core.running

    def live(self, request: Request) -> int:
        """The number of its live operation, 0 for none."""
        return self.life.operation(request.key) or 0

    def reading(self, number: int) -> int:
        """The host pages that an operation owns."""
        return self.slots.of(("op", number))

    def held(self, request: Request) -> int:
        """The host pages of its hold."""
        return self.slots.of(("hold", request.key))

    def tell(self, word: str, request: Request) -> None:
        """Note that this happened, for the question whether it did."""
        self.told.add((word, request.rid))

    def ask(self, request: Request, why: str = "", *, lost: bool = False) -> str:
        """The first question, or the one that a pass or the admission (`lost`) calls for; or why it was declined."""
        depth = self.tree.depth(request.prompt)
        again = lost or self.state(request) != "queued"
        # What is held already is asked for by nobody: a tail begins behind it.
        begin = depth + self.held(request)
        span = request.prompt[begin:]
        if not why and len(span) < self.world.threshold:
            why = TOO_SHORT
        if not why and self.world.mode == "cache" and self.charged() >= self.limit:
            why = RATE_LIMITED
        anchor = self.rebase(request, depth)
        put = self.life.lose_match if lost else self.life.issue
        number = put(request.key, asks=not why, why=why, tokens=len(span), anchor=anchor)
        if number is None:
            return why or "declined"
        if again:
            self.tell("reissue", request)
        request.questions.append(Asked(number, begin, self.storage.emptied))
        self.tell("issue", request)
        return ""

    def charged(self) -> int:
        """Host pages that the rate limit counts in cache mode: those taken, and those that questions out may take."""
        asking = sum(
            len(each.prompt) - each.questions[-1].base
            for each in self.requests.values()
            if self.state(each) in ("probing", "retrying")
        )
        return self.life.occupied_tokens + asking

    def bars_reset(self, event: str) -> str:
        """Why the engine refuses a flush or a detach, nothing if it does not.

        Upstream wants nothing to run, to be asked, read, held or written, and nobody to wait; in a pause, 0.5.23's
        flush ignores who only waits.
        """
        under = self.life.settings.constants.resets_under
        if under == "queue":
            return ""
        requests = self.requests.values()
        busy = any(self.runs(each) or self.live(each) or self.held(each) for each in requests)
        if busy or self.slots.total("fill") or self.storage.writing:
            return "something is pending"
        ignored = under == "pause" and self.paused and event == "flush"
        return "requests queue" if not ignored and any(self.queues(each) for each in requests) else ""

    def rebase(self, request: Request, depth: int) -> Anchor | None:
        """The device node that the span hangs on now; one that is off the device if there was one and is none."""
        request.base = depth
        if depth:
            request.node = request.prompt[depth - 1]
            return Anchor(request.node, depth)
        return Anchor(request.node, 1, on_device=False) if request.node else None

    def room(self, request: Request, pages: int, anchor: Anchor | None) -> tuple[int, str]:
        """How many pages of a hit may be fetched now, and why not all or none.

        Cache mode makes do with as many as there is room for (#19320). Buffer mode waits, also for the pin's budget
        where pins are taken late: who took one early and waits would hold what another waits for.
        """
        allowed = min(self.slots.free, self.limit - self.life.occupied_tokens)
        if pages > allowed:
            if self.world.mode == "cache" and allowed >= self.world.threshold:
                return allowed, HOST_CAPACITY
            return 0, HOST_CAPACITY if pages > self.slots.free else RATE_LIMITED
        if anchor is None or not anchor.on_device or request.key in self.pools.locked:
            return pages, ""
        waits = self.world.mode == "buffer_only" and not self.early
        busy = waits and self.life.pin_verdict(anchor.tokens) == "cap_busy"
        return (0, "pin_cap") if busy else (pages, "")

    def fits(self, request: Request) -> bool:
        """Whether the device has room beside what others pin and run: a page more than the prompt, for its output."""
        own = self.pools.locked.get(request.key, 0)
        return self.used() - own + len(request.prompt) + 1 <= self.world.pool

    def used(self) -> int:
        """Device pages that are pinned or run."""
        running = sum(len(each.prompt) + 1 for each in self.requests.values() if self.runs(each))
        return running + sum(self.pools.locked.values())

    def heard(self, span: Sequence[str], found: int) -> None:
        """What an answered question says of pages: those found are stored, those beyond are not."""
        self.life.confirm("kv", span[:found])
        self.life.deny("kv", span[found:])

    def short(self, request: Request, asked: Asked, pages: int) -> str:
        """The auxiliary page that a hybrid read of so many pages needs and storage has not: that of its last page."""
        if self.world.layout == "dense" or not pages:
            return ""
        aux = f"{self.world.layout}.{request.prompt[asked.base + pages - 1]}"
        return "" if aux in self.storage.pages else aux

    def drop(self, request: Request, why: str) -> Reply:
        """A known hit or a hold is not worth keeping."""
        self.life.revoke(request.key, why)
        self.tell("revoke", request)
        return DONE
