"""Draws worlds and events from one source of chance: every word, every exit, in mixes that differ from run to run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final, TypeVar

from hicache_fsm.suite.language import WORDS
from hicache_fsm.suite.protocol import Event, Observed, World

T = TypeVar("T")
Rule = Callable[["Swarm", Observed], Event | None]

TREE: Final = (("p1", "p2", "p3", "p4", "p5"), ("p1", "p2", "q3", "q4"), ("s1", "s2", "s3"))
"""Chains of pages that prompts are cut from: two that share a prefix, and one apart."""

RIDS: Final = ("a", "b", "c", "d")
OVER: Final = ("absent", "finished", "aborted")
ASKING: Final = ("probing", "retrying")
WAITING: Final = ("queued", "missed", "pending", "exhausted", "loaded")
IN_FLIGHT: Final = (*ASKING, "parked", "transferring")
QUEUED: Final = (*WAITING, *IN_FLIGHT)
TAIL: Final = ("missed", "pending", *ASKING)
ENDINGS: Final = {"pause": "resume", "detach": "attach"}


class Swarm:
    """One run's choices.

    Some rules are left out of a run and some come up more often, as swarm testing does: a fault that needs one rule
    to be rare is found where it is. What is drawn depends on `random` and on what the target showed, and on nothing
    else, so a run is repeated by its seed.
    """

    def __init__(self, random: Random, *, only: frozenset[str] = frozenset()) -> None:
        """`only` names the words that may be drawn, all by default."""
        self.random = random
        self.world = draw_world(random)
        self.ended: list[str] = []
        self.uprooted = ""
        self._words = only or frozenset(WORDS)
        self._weights = {name: weight * self._factor(name) for name, (weight, _) in RULES.items()}

    def event(self, seen: Observed) -> Event:
        """The next event, one that makes sense in what was seen, most of the time."""
        names = list(self._weights)
        weights = list(self._weights.values())
        while True:
            (name,) = self.random.choices(names, weights)
            drawn = self.rule(name, seen)
            if drawn is not None:
                return drawn

    def rule(self, name: str, seen: Observed) -> Event | None:
        """An event by one rule, None where it has none now."""
        drawn = RULES[name][1](self, seen)
        if drawn is None or drawn.name not in self._words:
            return None
        if drawn.name in ENDINGS:
            self.ended.append(ENDINGS[drawn.name])
        return drawn

    def pick(self, some: Sequence[T]) -> T:
        """One of them."""
        return self.random.choice(some)

    def rarely(self, one_in: int) -> bool:
        """True once in so many."""
        return self.random.randrange(one_in) == 0

    def rid(self, seen: Observed, states: Sequence[str], stray: int = 25) -> str | None:
        """A request in one of the states; once in `stray` any request, whose event is then refused."""
        there = [rid for rid in self.world.prompts if state(seen, rid) in states]
        if self.rarely(stray):
            there = list(self.world.prompts)
        return self.pick(there) if there else None

    def stored(self, rid: str, seen: Observed) -> int:
        """How many pages of the request's prompt storage has, one after the other."""
        span = [page for page in self.world.prompts.get(rid, ()) if page in seen.stored]
        return len(span)

    def prefix(self) -> tuple[str, ...]:
        """The first pages of some prompt."""
        prompt = self.pick(list(self.world.prompts.values()))
        return prompt[: self.random.randint(1, len(prompt))]

    def _factor(self, name: str) -> float:
        return 1.0 if name in ALWAYS else self.pick((0.0, 0.5, 1.0, 1.0, 3.0))


def draw_world(random: Random) -> World:
    """A small world: shared prefixes, tight pools, and any mode, layout and pacing."""
    prompts = {}
    chains = random.choice((TREE, TREE[:2], TREE[:1]))
    for rid in RIDS[: random.choice((1, 2, 2, 3, 3, 3, 4))]:
        chain = random.choice(chains)
        prompts[rid] = chain[: random.randint(2, len(chain))]
    longest = max(map(len, prompts.values()))
    stored = [random.choice(chains) for _ in range(2)]
    held = random.choice(chains)
    layout = random.choice(("dense", "dense", "dense", "swa", "mamba"))
    pages = {page for chain in stored for page in chain[: random.choice((0, 2, 3, len(chain)))]}
    if layout != "dense":
        pages |= {f"{layout}.{page}" for page in sorted(pages) if random.random() < 0.8}
    return World(
        prompts,
        mode=random.choice(("buffer_only", "buffer_only", "buffer_only", "cache")),
        layout=layout,
        policy=random.choice(("wait_complete", "wait_complete", "best_effort", "timeout")),
        interval=random.choice((0, 1, 2, 2, 2, 3)),
        max_attempts=random.randint(1, 3),
        threshold=random.choice((1, 1, 2)),
        pool=random.choice((10, 12, 16, 24)),
        cap_fraction=random.choice((0.25, 0.5, 0.5)),
        host=random.choice((4, 8, 16)),
        context=longest + random.randint(1, 3),
        ranks=1,
        storage=frozenset(pages),
        device=frozenset(held[: random.choice((0, 1, 2, 2, 3))]),
    )


def plainer(world: World) -> Iterator[World]:
    """The world with less in it, for a target that cannot have it.

    Dense, then in buffer mode, then with nothing on the device, and at last with two requests that want the same.
    """
    dense = as_dense(world)
    plain = replace(dense, mode="buffer_only", policy="wait_complete")
    yield from (dense, replace(dense, mode="buffer_only"), plain)
    yield from (replace(dense, device=frozenset()), replace(plain, device=frozenset()))
    longest = max(world.prompts.values(), key=len)
    yield replace(plain, prompts=dict.fromkeys(RIDS[:2], longest), device=frozenset())


def as_dense(world: World) -> World:
    """The world without auxiliary pools."""
    return replace(
        world, layout="dense", storage=frozenset(page for page in world.storage if "." not in page)
    )


def state(seen: Observed, rid: str) -> str:
    """The request's state as shown, `absent` for one that never came."""
    view = seen.requests.get(rid)
    return "absent" if view is None else view.state


def _of(word: str, rid: str | None, amount: int | None = None, **facts: str) -> Event | None:
    return None if rid is None else Event(word, (rid,), amount=amount, facts=facts)


def _arrive(swarm: Swarm, seen: Observed) -> Event | None:
    rid = swarm.rid(seen, OVER, stray=20)
    if swarm.rarely(10):
        return _of("enq", rid, why=swarm.pick(("too_short", "rate_limited", "aux_alloc")))
    return _of("enq", rid)


def _ask(swarm: Swarm, seen: Observed) -> Event | None:
    return _of("issue", swarm.rid(seen, ("queued",)))


def _pass(swarm: Swarm, seen: Observed) -> Event | None:
    """Passes, above all while somebody waits for one."""
    waits = any(view.state in ("missed", "pending", "parked") for view in seen.requests.values())
    if not waits and not swarm.rarely(4):
        return None
    return Event("tick", amount=swarm.pick((1, 1, 1, 2, max(1, swarm.world.interval))))


def _answer(swarm: Swarm, seen: Observed) -> Event | None:
    rid = swarm.rid(seen, ASKING)
    if rid is None:
        return None
    match swarm.random.randrange(9):
        case 0:
            return _of("hit", rid)
        case 1 | 2 | 3:
            return _of("hit", rid, swarm.random.randint(1, max(1, swarm.stored(rid, seen))))
        case 4:
            return _of("hit", rid, room="no", why=swarm.pick(("rate_limited", "pin_cap", "host_capacity")))
        case 5 | 6:
            return _of("answer", rid)
        case _:
            return _of("miss", rid, why=swarm.pick(("below_threshold", "absent", "terminated")))


def _read(swarm: Swarm, seen: Observed) -> Event | None:
    rid = swarm.rid(seen, ("transferring",))
    pages = 0 if rid is None or rid not in seen.requests else seen.requests[rid].pages
    match swarm.random.randrange(8):
        case 0 | 1:
            return _of("xfer", rid, swarm.random.randint(1, max(1, pages)))
        case 2 | 3:
            return _of("done", rid)
        case 4:
            return _of("done", rid, swarm.random.randint(1, max(1, pages)))
        case 5:
            return _of("fail", rid, why=swarm.pick(("read_error", "nothing_usable")))
        case 6:
            return _of("discard", rid, swarm.random.randint(0, pages))
        case _:
            return _of("answer", rid)


def _late(swarm: Swarm, seen: Observed) -> Event | None:
    """An answer to an older question, whose asker may be long gone; storage knows what it owes it."""
    asked = [rid for rid, count in seen.asked.items() if count]
    if not asked or not (seen.orphans or swarm.rarely(12)):
        return None
    rid = swarm.pick(asked)
    return _of(
        swarm.pick(("answer", "answer", "done", "fail")),
        rid,
        q=str(swarm.random.randint(1, seen.asked[rid])),
    )


def _turn(swarm: Swarm, seen: Observed) -> Event | None:
    return _of("alloc", swarm.rid(seen, ("parked",)))


def _admit(swarm: Swarm, seen: Observed) -> Event | None:
    rid, swarm.uprooted = swarm.uprooted, ""
    if rid and state(seen, rid) in WAITING:
        return _of("admit", rid)
    return _of("admit", swarm.rid(seen, WAITING if not swarm.rarely(6) else QUEUED))


def _copy(swarm: Swarm, seen: Observed) -> Event | None:
    return _of("ack", swarm.rid(seen, ("running", "finished")))


def _end(swarm: Swarm, seen: Observed) -> Event | None:
    rid = swarm.rid(seen, ("running",))
    if swarm.rarely(2):
        return _of("finish", rid)
    return _of("retract", rid, why=swarm.pick(("retracted", "preempted", "paused", "requeued")))


def _leave(swarm: Swarm, seen: Observed) -> Event | None:
    rid = swarm.rid(seen, QUEUED)
    if swarm.rarely(6):
        return _of("abandon", rid)
    return _of(
        "abort", rid, why=swarm.pick(("client", "queue_limit", "priority", "timeout", "bootstrap", "session"))
    )


def _stop(swarm: Swarm, seen: Observed) -> Event | None:
    rid = swarm.rid(seen, IN_FLIGHT)
    pages = 0 if rid is None or rid not in seen.requests else seen.requests[rid].pages
    return _of(swarm.pick(("cut", "expire")), rid, swarm.random.randint(0, pages) if pages else None)


def _spoil(swarm: Swarm, seen: Observed) -> Event | None:
    rid = swarm.rid(seen, (*ASKING, "parked", "loaded"))
    return _of("revoke", rid, why=swarm.pick(("device_covered", "oversize", "unservable")))


def _tree(swarm: Swarm, seen: Observed) -> Event:
    pages = swarm.prefix()
    match swarm.random.randrange(6):
        case 0 | 1:
            return Event("insert", pages)
        case 2 | 3 | 4:
            return Event("evict", node=swarm.pick(pages))
        case _:
            return Event("split", node=swarm.pick(pages))


def _uproot(swarm: Swarm, seen: Observed) -> Event | None:
    """The base of a queued request that pins nothing leaves the device."""
    loose = [
        rid
        for rid, view in seen.requests.items()
        if view.state in QUEUED and not view.pinned and rid in swarm.world.prompts
    ]
    if not loose:
        return None
    rid = swarm.uprooted = swarm.pick(loose)
    prompt, base = swarm.world.prompts[rid], seen.requests[rid].base
    return Event("evict", node=prompt[base - 1] if base else swarm.pick(prompt))


def _cool(swarm: Swarm, seen: Observed) -> Event | None:
    """What a request left on the device goes, or a part of it, so that the next one has something to ask for."""
    over = [rid for rid, view in seen.requests.items() if view.state == "finished"]
    prompt = swarm.world.prompts.get(swarm.pick(over)) if over else None
    return Event("evict", node=swarm.pick(prompt)) if prompt else None


def _node(swarm: Swarm, seen: Observed) -> Event:
    word, page = swarm.pick(("load", "loaded", "tombstone")), swarm.pick(swarm.prefix())
    return Event(word, node=page, facts={} if word == "tombstone" else {"by": swarm.pick(("x", "y"))})


def _write(swarm: Swarm, seen: Observed) -> Event:
    if swarm.rarely(2):
        return Event("write", swarm.prefix())
    return Event("wack", swarm.prefix(), facts={"ok": swarm.pick(("yes", "yes", "no"))})


def _store(swarm: Swarm, seen: Observed) -> Event:
    word = swarm.pick(("store", "store", "store", "store", "drop", "drop", "clear"))
    if word == "clear":
        return Event(word)
    pages = swarm.prefix()
    partial = [rid for rid, view in seen.requests.items() if view.hold and view.state in TAIL]
    if partial and not swarm.rarely(3):
        pages = swarm.world.prompts[swarm.pick(partial)]
    aux = swarm.world.layout != "dense" and not swarm.rarely(4)
    return Event(word, (*pages, *(f"{swarm.world.layout}.{page}" for page in pages)) if aux else pages)


def _reset(swarm: Swarm, seen: Observed) -> Event:
    return Event(swarm.pick(("flush", "detach")))


def _pause(swarm: Swarm, seen: Observed) -> Event:
    return Event("pause")


def _recover(swarm: Swarm, seen: Observed) -> Event | None:
    """What ends a pause or brings a storage back, if there is need."""
    return Event(swarm.ended.pop()) if swarm.ended else None


def _settle(swarm: Swarm, seen: Observed) -> Event:
    return Event("settle", amount=8)


RULES: Final[Mapping[str, tuple[float, Rule]]] = {
    "arrive": (5, _arrive),
    "ask": (1, _ask),
    "pass": (4, _pass),
    "answer": (10, _answer),
    "read": (10, _read),
    "late": (4, _late),
    "turn": (3, _turn),
    "admit": (2.5, _admit),
    "copy": (3, _copy),
    "end": (4, _end),
    "leave": (1.5, _leave),
    "stop": (2, _stop),
    "spoil": (0.5, _spoil),
    "tree": (1.5, _tree),
    "uproot": (1.5, _uproot),
    "cool": (3, _cool),
    "node": (0.7, _node),
    "write": (1.5, _write),
    "store": (1.5, _store),
    "reset": (0.3, _reset),
    "pause": (0.2, _pause),
    "recover": (4, _recover),
    "settle": (0.15, _settle),
}
"""The rules by name, and how often each comes up before a run's own factors."""

ALWAYS: Final = frozenset({"arrive", "pass", "answer", "recover"})
"""Rules that no run leaves out: without them nothing happens."""
