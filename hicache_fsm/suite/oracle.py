"""Judges the invariants of spec/invariants.toml from what a target answers and shows, and from nothing else.

It shares no code with the runtime or its monitor.  It sees what any target can show, so an invariant that needs more is
judged as far as that goes: tombstone-once only where the target's own pools object.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hicache_fsm.suite.protocol import Answer, Event, Observed, Reply, RequestView, World

OVER: Final = frozenset({"running", "finished", "scheduled", "aborted"})
WAITS: Final = frozenset({"probing", "retrying", "parked", "transferring"})
QUEUED: Final = WAITS | {"queued", "missed", "pending", "loaded", "exhausted"}
ARMED: Final = frozenset({"missed", "pending"})

COMPLETIONS: Final = frozenset({"hit", "miss", "done", "fail", "discard", "answer"})
PACED: Final = frozenset({"miss", "fail", "cut"})
"""Events after which a marker is of the paced kind for sure."""

ASKING: Final = frozenset({"enq", "issue", "retract", "pause"})
"""Events whose question is an attempt's first one, not a re-issue."""

WIDE: Final = frozenset({"settle"})
"""Events that are many: steps inside them are not seen one by one."""

ENOUGH: Final = 64
"""Passes after which `settle` should have seen everyone through."""

WEIGHT: Final = (
    "marker-owned", "no-residue", "one-in-flight", "asked-armed", "marker-once", "paced", "attempts-bounded",
    "disabled-inert", "pin-owned", "pin-cap", "headroom", "load-exclusive", "tombstone-once", "conservation",
    "belief-evidence", "heals", "lockstep", "progress",
)  # fmt: skip
"""The order in which one step's findings are told: a cause before what follows from it."""

NOBODY: Final = RequestView()


@dataclass(frozen=True, slots=True)
class Finding:
    """One invariant broken at one step, by whom (a request, a page, or nobody in particular), and what was seen."""

    invariant: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.told}"

    @property
    def told(self) -> str:
        """By whom and what, without the invariant."""
        return f"{self.subject}{': ' if self.subject else ''}{self.message}"


@dataclass(slots=True)
class _Life:
    """What is remembered of one request's newest attempt; passes are -1 for none."""

    attempt: int = 0
    asked_before: int = 0
    asked_at_miss: int = 0
    raised: int = -1
    paced: bool = False
    reissues: int = 0
    order: int = 0


@dataclass(slots=True)
class _Pages:
    """Pages with evidence against them and no write acknowledged since, writes in flight, and load-backs by node."""

    holes: set[str] = field(default_factory=set)
    writing: set[str] = field(default_factory=set)
    claims: dict[str, str] = field(default_factory=dict)


def _weight(finding: Finding) -> tuple[bool, int, str]:
    """Whose fault is known comes first, then the more telling invariant."""
    known = finding.invariant in WEIGHT
    return not finding.subject, WEIGHT.index(finding.invariant) if known else len(WEIGHT), str(finding)


class Oracle:
    """Sees one run, step by step; each broken invariant is told once per step that breaks it anew."""

    def __init__(self, world: World, first: Observed | None = None) -> None:
        """`first` is the state before any event, if known."""
        self._world = world
        self._before = first or Observed(0, {})
        self._lives: dict[str, _Life] = {}
        self._pages = _Pages()
        self._queued = 0
        self._paused = False
        self._attached = True
        self._open: set[Finding] = set()

    def see(self, event: Event, reply: Reply, after: Observed) -> list[Finding]:
        """What the event broke: findings that were not standing before it."""
        before, self._before = self._before, after
        took = reply.answer in (Answer.DONE, Answer.SEEN)
        # What an orphan owned goes back with the pass that takes its last answer in.
        standing = set(self._states(after, rested=event.name in ("tick", "settle")))
        found = [each for each in standing if each not in self._open]
        self._open = standing
        for rid, view in after.requests.items():
            found += self._request(rid, before.requests.get(rid, NOBODY), view, event, before, after)
        found += self._one_in_flight(event, before, after)
        found += self._headroom(event, reply, before, after)
        found += self._nodes(event, reply)
        found += self._beliefs(event, reply, before, after)
        if took:
            self._engine(event)
        if event.name == "settle" and took and (event.amount or ENOUGH) >= ENOUGH and not self._paused:
            found += self._settled(after)
        return sorted(set(found), key=_weight)

    def _engine(self, event: Event) -> None:
        match event.name:
            case "pause" | "resume":
                self._paused = event.name == "pause"
            case "detach" | "attach":
                self._attached = event.name == "attach"

    def _states(self, now: Observed, *, rested: bool) -> Iterator[Finding]:
        for rid, view in now.requests.items():
            yield from self._state(rid, view)
        yield from self._pools(now, rested=rested)
        if now.pinned > now.pin_cap:
            yield Finding("pin-cap", "", f"{now.pinned} pages pinned, the cap is {now.pin_cap}")
        pinned = sum(view.pinned for view in now.requests.values())
        if pinned != now.pinned:
            yield Finding("pin-owned", "", f"live holders pin {pinned} pages, {now.pinned} are pinned")
        if now.idle:
            left = {"pages pinned": now.pinned, "host pages occupied": now.occupied, "orphans": now.orphans}
            if any(left.values()):
                told = ", ".join(f"{count} {what}" for what, count in left.items() if count)
                yield Finding("no-residue", "", f"idle, and {told}")
        for fault in now.faults:
            invariant, colon, what = fault.partition(": ")
            yield Finding(invariant if colon else "conservation", "", what or fault)
        if len({tuple(sorted(asked.items())) for asked in now.asked_by_rank}) > 1:
            counts = "; ".join(", ".join(f"{r} {n}" for r, n in asked.items()) for asked in now.asked_by_rank)
            yield Finding("lockstep", "", f"the ranks asked {counts}")

    def _state(self, rid: str, view: RequestView) -> Iterator[Finding]:
        over = view.state in OVER
        if view.marker and view.state not in QUEUED:
            yield Finding("marker-owned", rid, f"{view.state} with its marker up")
        elif view.marker and view.state != "missed":
            yield Finding("marker-once", rid, f"in {view.state} with its marker up")
        if view.spent > self._world.max_attempts:
            spent = f"{view.spent} re-issues spent of {self._world.max_attempts}"
            yield Finding("attempts-bounded", rid, spent)
        if self._world.interval == 0 and (view.marker or view.state in ARMED):
            yield Finding("disabled-inert", rid, f"{view.state} although retries are off")
        if over and view.pinned:
            yield Finding("pin-owned", rid, f"{view.state} with {view.pinned} pages pinned")
        left = {
            "a marker": view.marker,
            "a question": view.question,
            "host pages": view.pages,
            "a hold": view.hold,
            "a pin": view.pinned,
        }
        if over and any(left.values()):
            yield Finding(
                "no-residue", rid, f"{view.state} with {', '.join(k for k, v in left.items() if v)}"
            )

    def _pools(self, now: Observed, *, rested: bool) -> Iterator[Finding]:
        owned = sum(view.pages + view.hold for view in now.requests.values())
        if self._world.mode == "buffer_only" and owned > now.occupied:
            yield Finding("conservation", "", f"{owned} host pages are owned, only {now.occupied} occupied")
        owned += (now.filling or 0) + (now.orphan_pages or 0)
        if now.host_free is not None and now.host_free + owned > self._world.host:
            free = f"{now.host_free} are free of {self._world.host}"
            yield Finding("conservation", "", f"{owned} host pages are owned, {free}")
        if now.host_free is not None:
            if not 0 <= now.host_free <= self._world.host:
                yield Finding(
                    "conservation", "", f"{now.host_free} of {self._world.host} host pages are free"
                )
            elif (
                now.idle and rested and self._world.mode == "buffer_only" and now.host_free < self._world.host
            ):
                yield Finding(
                    "conservation", "", f"idle, and {now.host_free} of {self._world.host} host pages free"
                )

    def _request(
        self, rid: str, was: RequestView, view: RequestView, event: Event, before: Observed, after: Observed
    ) -> Iterator[Finding]:
        life = self._lives.setdefault(rid, _Life())
        asked, asked_before = after.asked.get(rid, 0), before.asked.get(rid, 0)
        begins = view.state in QUEUED and (was.state not in QUEUED or view.attempt != was.attempt)
        if begins:
            self._queued += 1
            self._lives[rid] = life = _Life(view.attempt, asked_before, asked_before, order=self._queued)
        if event.name in WIDE:
            life.reissues, life.raised, life.asked_at_miss = 0, -1, asked - view.question
            life.asked_before = asked
            return
        more = asked - asked_before
        spent = view.spent - was.spent if view.attempt == was.attempt and not begins else 0
        # A parked question has been answered, and several ranks take answers in as part of a pass.
        open_ = was.question and was.state != "parked" and self._world.ranks == 1
        if open_ and more and view.question and after.orphans <= before.orphans:
            yield Finding("one-in-flight", rid, "asked again while its question is out")
        if more and event.name not in ASKING:
            yield from self._reissue(rid, life, was, event, more, after.now)
        rose = view.state in ARMED and (was.state not in ARMED or begins or view.attempt != was.attempt)
        rose = rose or (view.marker and not was.marker and view.state == "missed")
        if rose and asked <= life.asked_at_miss:
            yield Finding("asked-armed", rid, "armed although no question was asked (#40042)")
        elif spent > max(more, 0):
            yield Finding("asked-armed", rid, f"re-issues charged: {spent}, questions asked: {more} (#40042)")
        if rose:
            life.raised, life.paced = after.now, event.name in PACED
            life.asked_at_miss = asked

    def _reissue(
        self, rid: str, life: _Life, was: RequestView, event: Event, more: int, now: int
    ) -> Iterator[Finding]:
        life.reissues += more
        if life.reissues > self._world.max_attempts:
            yield Finding(
                "attempts-bounded",
                rid,
                f"asked again {life.reissues} times, {self._world.max_attempts} allowed",
            )
        # What came before the question is not seen in several passes, nor on ranks, which take answers in with a pass.
        if event.name != "tick" or (event.amount or 1) > 1 or self._world.ranks > 1:
            return
        if was.state not in ARMED or more > 1:
            yield Finding("marker-once", rid, f"a pass asked again for what was {was.state}")
        elif life.paced and now - life.raised < self._world.interval:
            waited = f"asked again {now - life.raised} passes after its miss, the interval is {self._world.interval}"
            yield Finding("paced", rid, waited)

    def _one_in_flight(self, event: Event, before: Observed, after: Observed) -> Iterator[Finding]:
        """The answer to an older question changes nothing of the request's newer one (#39318)."""
        if event.name not in COMPLETIONS or "q" not in event.facts:
            return
        rid = event.subjects[0]
        was, view = before.requests.get(rid, NOBODY), after.requests.get(rid, NOBODY)
        old = int(event.facts["q"]) < before.asked.get(rid, 0) or not was.question
        if old and was != view:
            message = f"the answer to question {event.facts['q']} made it {view.state}, which was {was.state} (#39318)"
            yield Finding("one-in-flight", rid, message)

    def _headroom(self, event: Event, reply: Reply, before: Observed, after: Observed) -> Iterator[Finding]:
        """Nothing runs, and the head of the queue, which fits the pool, was looked at and not admitted (#37464)."""
        if self._paused or event.name != "admit" or reply.answer not in (Answer.REFUSED, Answer.ABSENT):
            return
        rid = event.subjects[0]
        was, view = before.requests.get(rid, NOBODY), after.requests.get(rid, NOBODY)
        ready = view.state in QUEUED - WAITS and was == view
        heads = self._head(after.requests) == rid
        runs = any(each.state == "running" for each in after.requests.values()) or bool(after.filling)
        fits = len(self._world.prompts.get(rid, ())) < self._world.pool
        if ready and heads and fits and not runs:
            pinned = f"{after.pinned} of {self._world.pool} pages are pinned"
            yield Finding("headroom", rid, f"nothing runs and the head is not admitted: {pinned}")

    def _head(self, requests: Mapping[str, RequestView]) -> str:
        queue = [rid for rid, view in requests.items() if view.state in QUEUED]
        return min(queue, key=lambda rid: self._lives[rid].order, default="")

    def _nodes(self, event: Event, reply: Reply) -> Iterator[Finding]:
        """A node has one load-back at a time (#35931), and does not leave the device while one fills it."""
        if reply.answer is not Answer.DONE:
            return
        claims = self._pages.claims
        match event.name:
            case "load":
                other = claims.setdefault(event.node, event.facts["by"])
                if other != event.facts["by"]:
                    message = f"claimed by {event.facts['by']} while {other} loads it"
                    yield Finding("load-exclusive", event.node, message)
            case "loaded":
                if claims.get(event.node) == event.facts["by"]:
                    del claims[event.node]
            case "evict" if event.node in claims:
                yield Finding(
                    "conservation", event.node, f"evicted while {claims[event.node]} loads it (#27444)"
                )

    def _beliefs(self, event: Event, reply: Reply, before: Observed, after: Observed) -> Iterator[Finding]:
        if self._world.mode != "buffer_only":
            return
        took = reply.answer is Answer.DONE
        pages = self._pages
        if event.name == "write":
            yield from self._heals(event, reply, before)
            pages.writing |= set(event.subjects) if took else set()
        elif event.name == "wack" and took and event.facts.get("ok") != "no":
            pages.holes -= set(event.subjects)
        elif event.name in ("flush", "detach") and took:
            pages.writing.clear()
        # A later answer that found the page is newer evidence than what spoke against it.
        pages.holes -= after.believed & after.stored
        if event.name in COMPLETIONS or event.name in WIDE:
            pages.holes -= after.believed - before.believed
        against = self._against(event, before) if took else set()
        pages.writing -= set(event.subjects) if event.name == "wack" and took else set()
        pages.holes |= against
        for page in sorted(against & after.believed):
            yield Finding("belief-evidence", page, f"still believed stored after {event.name}")

    def _against(self, event: Event, before: Observed) -> set[str]:
        """The pages that the event is evidence against."""
        match event.name:
            case "wack" if event.facts.get("ok") == "no":
                # Of a write that a flush has forgotten, later answers may know better.
                return set(event.subjects) & self._pages.writing
            case "clear" | "detach":
                return set(before.believed)
            case "discard" if "q" not in event.facts:
                return self._discarded(event.subjects[0], event.amount or 0, before)
        return set()

    def _discarded(self, rid: str, kept: int, before: Observed) -> set[str]:
        """Pages of a discarded read that not every pool served; none where its base is not told."""
        view, prompt = before.requests.get(rid, NOBODY), self._world.prompts.get(rid, ())
        if view.base is None:
            return set()
        return set(prompt[view.base + kept : view.base + view.pages])

    def _heals(self, event: Event, reply: Reply, before: Observed) -> Iterator[Finding]:
        """What there was evidence against is written when it is inserted again (#36386)."""
        if reply.answer is not Answer.REFUSED or not self._attached:
            return
        for page in event.subjects:
            hole = page in self._pages.holes and page not in before.stored
            if hole and page not in self._pages.writing:
                yield Finding("heals", page, "a hole, inserted again and not written")

    def _settled(self, now: Observed) -> Iterator[Finding]:
        """Storage answered all it owed and passes went by: everyone is through."""
        for rid, view in now.requests.items():
            if view.state in QUEUED:
                yield Finding("progress", rid, f"still {view.state} after storage answered all it owed")
        if now.orphans:
            yield Finding("progress", "", f"{now.orphans} orphans never end")
