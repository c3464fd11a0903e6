"""A second opinion on every event: the design's sentences for the profile `recommended`, written down once more.

It shares no code with the runtime, the model or the compiled machines, and reads no table.  What the world decides
(whether a span is long enough to ask for, how much storage has, whether there is room) it takes from what was seen;
what the lifecycle decides it foretells.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hicache_fsm.suite.protocol import Answer, Event, Observed, Reply, RequestView, World
from hicache_fsm.suite.ways import IN_FLIGHT, QUEUED, RULES, Next, One, Terms, arrives, lost, same

ANSWERS: Final = frozenset({"hit", "miss", "xfer", "done", "fail", "discard", "answer"})
ORPHANING: Final = frozenset({"cut", "expire", "abort", "abandon", "flush", "detach", "admit"})
"""Events after which an operation may go on without its attempt; every other one ends it."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What was seen and should not have been, and a condition of docs/scenarios.md that says what should."""

    message: str
    expect: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Path:
    """Where some passes may have led one request: its state, what its marker stands for, and the questions asked."""

    state: str
    immediate: bool
    swept: int | None
    asked: int = 0


class Reference:
    """Follows one cache from its first event.  After a mismatch it believes what it saw."""

    def __init__(self, world: World) -> None:
        self._terms = Terms(world)
        self._ones: dict[str, One] = {rid: One() for rid in world.prompts}
        self._orphans: set[tuple[str, int]] = set()
        self._strays = 0
        self._now = 0
        self._arrivals = 0

    def see(self, event: Event, reply: Reply, seen: Observed) -> list[Mismatch]:
        """What the event and its answer should not have led to; usually nothing."""
        happened = reply.answer is Answer.DONE  # what was seen to have happened, happened by an event before
        ways = self._ways(event, happened)
        found = list[Mismatch]()
        for rid, one in sorted(self._ones.items(), key=lambda each: each[1].order):
            view = seen.requests.get(rid, RequestView())
            asked = seen.asked.get(rid, 0)
            chosen = None
            if event.name != "settle":
                allowed = ways.get(rid, [replace(same(one), pin="kept")])
                chosen = next((way for way in allowed if _fits(way, one, view, asked)), None)
                if chosen is None:
                    found.append(_mismatch(rid, one, view, asked, event, allowed))
            self._adopt(rid, one, view, asked, chosen, event)
        if happened and event.name in ("attach", "detach"):
            self._terms.attached = event.name == "attach"
        if event.name == "settle":
            self._orphans.clear()
            self._strays, self._now = seen.orphans, seen.now
        strays = seen.orphans - len(self._orphans)
        if not 0 <= strays <= self._strays:
            known = len(self._orphans)
            message = f"{event.name}: {seen.orphans} operations answer for nobody, not {known}"
            found.append(Mismatch(message, f"orphans == {known}"))
        self._strays = max(strays, 0)
        return found

    def _ways(self, event: Event, happened: bool) -> Mapping[str, list[Next]]:
        """For each request that the event may change, the ways on.  One that is not named must stay as it is."""
        if event.name == "tick":
            return self._ticks(event.amount or 1)
        if event.name == "evict":
            return {
                rid: [same(one), *lost(self._terms, one)]
                for rid, one in self._ones.items()
                if event.node in self._terms.world.prompts[rid]
            }
        if event.name in ("flush", "detach") and happened:
            fresh = [Next("queued", hold=0, pin="gone")]
            return {rid: fresh for rid, one in self._ones.items() if one.view.state in QUEUED}
        if event.name == "pause" and happened:
            again = arrives(self._terms, 1)
            return {rid: again for rid, one in self._ones.items() if one.view.state == "running"}
        rule = RULES.get(event.name)
        if rule is None or len(event.subjects) != 1 or event.subjects[0] not in self._ones:
            return {}
        rid = event.subjects[0]
        one = self._ones[rid]
        if not happened and event.name not in ("admit", "alloc"):
            return {}
        if event.name in ANSWERS and not self._is_own(rid, one, event):
            return {}
        return {rid: [*([] if happened else [same(one)]), *rule(self._terms, one, event)]}

    def _is_own(self, rid: str, one: One, event: Event) -> bool:
        """Whether the answer is to the attempt's own question; an older one changes nobody, and ends its orphan."""
        number = int(event.facts["q"]) if "q" in event.facts else one.question
        if number and number == one.question:
            return True
        if event.name != "xfer":
            self._orphans.discard((rid, number))
        return False

    def _ticks(self, passes: int) -> Mapping[str, list[Next]]:
        """Where so many passes lead, pass by pass, since what one did the next one sees."""
        queue = sorted((one.order, rid) for rid, one in self._ones.items() if one.view.state in QUEUED)
        ways = {}
        for place, (_, rid) in enumerate(queue):
            one = self._ones[rid]
            known = (one.immediate,) if one.immediate is not None else (True, False)
            paths = {Path(one.view.state, kind, one.swept) for kind in known}
            for now in range(self._now + 1, self._now + passes + 1):
                paths = {after for path in paths for after in self._pass(path, one, now, head=place == 0)}
            ways[rid] = [Next(each.state, each.asked, each.asked, 0, each.immediate) for each in paths]
            one.swept = max((each.swept or 0 for each in paths), default=0) or None
        self._now += passes
        return ways

    def _pass(self, path: "Path", one: One, now: int, *, head: bool) -> list["Path"]:
        """One sweep serves a marker; it is paced from there, unless it stands for a known hit (#36227)."""
        asks = replace(path, state="retrying", immediate=False, asked=path.asked + 1)
        again = [*([asks] if self._terms.attached else []), replace(path, state="queued", immediate=False)]
        if path.state == "parked":
            lost = "missed" if self._terms.arms else "queued"
            return [
                path,
                replace(path, state="transferring"),
                replace(path, state=lost, immediate=self._terms.arms),
            ]
        if path.state not in ("missed", "pending"):
            return [path]
        if head and not path.immediate:
            return [replace(path, state="queued")]
        if path.state == "missed":
            if one.view.spent + path.asked >= self._terms.world.max_attempts:
                return [replace(path, state="exhausted", immediate=False)]
            return again if path.immediate else [replace(path, state="pending", swept=now)]
        if path.swept is None:
            return [*again, path]
        return again if now - path.swept >= self._terms.world.interval else [path]

    def _adopt(
        self, rid: str, one: One, view: RequestView, asked: int, chosen: Next | None, event: Event
    ) -> None:
        """Remember what was seen, and what became of the operation that the request had."""
        was = one.view
        if view.state in QUEUED and (view.attempt != was.attempt or was.state not in QUEUED):
            self._arrivals += 1
            one.order = self._arrivals
        if one.question and (view.state not in IN_FLIGHT or asked != one.asked):
            if event.name in ORPHANING and was.state != "parked":
                self._orphans.add((rid, one.question))
            one.question = 0
        if view.state in IN_FLIGHT:
            one.question = one.question or asked
        if event.name == "settle":
            one.immediate, one.swept = None, None
        else:
            one.immediate = chosen.immediate if chosen is not None and view.state == "missed" else False
        one.view, one.asked = view, asked


def _foretold(way: Next, one: One) -> Mapping[str, object]:
    """What the request's view must be on that way, by the function of docs/scenarios.md that reads it."""
    was = one.view
    known: dict[str, object] = {
        "attempt": was.attempt + way.attempt if was.state != "absent" else 0,
        "asked": one.asked + way.asked,
        "marker": way.state == "missed",
        "question": way.state in IN_FLIGHT,
        "hold": was.hold if way.hold is None else way.hold,
    }
    if way.state in QUEUED:
        known["spent"] = way.spent if way.attempt or was.state == "absent" else was.spent + way.spent
    else:
        known["hold"] = 0
    return known


def _fits(way: Next, one: One, view: RequestView, asked: int) -> bool:
    if way.state != ("running" if view.state == "scheduled" else view.state):
        return False
    if bool(view.pages) != (way.state == "transferring"):
        return False
    if view.pinned and (way.pin == "gone" or way.state not in QUEUED):
        return False
    if way.pin == "kept" and view.pinned != one.view.pinned:
        return False
    foretold = _foretold(way, one)
    return all(
        value == (asked if name == "asked" else getattr(view, name)) for name, value in foretold.items()
    )


def _mismatch(
    rid: str, one: One, view: RequestView, asked: int, event: Event, allowed: list[Next]
) -> Mismatch:
    ways = allowed or [same(one)]
    words = " or ".join(dict.fromkeys(map(str, ways)))
    went = f"{event.name}: {rid} went from {_told(one.view, one.asked)} to {_told(view, asked)}"
    message = f"{went}, but should be {words}"
    return Mismatch(message, " or ".join(dict.fromkeys(_condition(rid, way, one) for way in ways)))


def _condition(rid: str, way: Next, one: One) -> str:
    parts = [
        f'state({rid}) == "{way.state}"',
        f"pages({rid}) {'>' if way.state == 'transferring' else '=='} 0",
    ]
    parts += [f"{name}({rid}) == {value}" for name, value in _foretold(way, one).items()]
    if way.pin != "any" or way.state not in QUEUED:
        parts.append(f"pin({rid}) == {one.view.pinned if way.pin == 'kept' else 0}")
    return f"({' and '.join(parts)})"


def _told(view: RequestView, asked: int) -> str:
    return (
        f"{view.state} (attempt {view.attempt}, {asked} questions, {view.spent} spent, "
        f"hold {view.hold}, pinned {view.pinned})"
    )
