"""Requests of the model's admission system, who want one span of one storage: their state, questions and answers."""

from collections.abc import Callable
from typing import Final

from hicache_fsm.model import Action
from hicache_fsm.suite.language import WORDS
from hicache_fsm.suite.protocol import Answer, Event, Observed, Reply, RequestView, UnsupportedError, World
from hicache_fsm.suite.targets.bounded import Bounded, Systems

DONE: Final = Reply(Answer.DONE)
SEEN: Final = Reply(Answer.SEEN)
ADMISSIBLE: Final = frozenset({"queued", "missed", "pending", "exhausted", "loaded"})
QUEUED: Final = ADMISSIBLE | {"probing", "retrying", "parked", "transferring"}
ATTEMPTS: Final = 2
MOST: Final = 3
"""Requests of a world that the model is built for."""

LIMITED: Final = frozenset({"rate_limited", "aux_alloc"})


def not_said(what: str) -> Reply:
    """The model has no step for it."""
    return Reply(Answer.INEXPRESSIBLE, f"the model has no {what}")


class Requests:
    """Requests in the order of their arrival; what the model leaves free is decided as an engine would."""

    def __init__(self, world: World, systems: Systems) -> None:
        """Raises UnsupportedError where requests want different spans, as the model's all want the same."""
        prompts = list(world.prompts.values())
        bases = {next((n for n, page in enumerate(p) if page not in world.device), len(p)) for p in prompts}
        spans = {tuple(p[min(bases) :]) for p in prompts}
        if len(spans) != 1 or len(bases) != 1:
            raise UnsupportedError("in the model every request wants the same span on the same base")
        if len(prompts) > MOST:
            raise UnsupportedError(f"the model is built for at most {MOST} requests")
        self._base, self._span = bases.pop(), spans.pop()
        if not self._span:
            raise UnsupportedError("in the model every request wants pages that the device has not")
        self._world, self._rules = world, systems.constants(world)
        # At admission the model asks a page more than the longest context, which is the longest prompt here.
        bounds = {
            "requests": len(prompts),
            "chain": len(self._span),
            "host": world.host,
            "device": world.pool,
            "context": max(map(len, prompts)),
            "anchors": [self._base] * len(prompts),
            "attempts": ATTEMPTS,
        }
        self._stored = set(world.storage)
        stored = self._leading()
        self._model = Bounded(*systems.build("admission", world, bounds), stored=stored)
        self._order: dict[str, int] = {}
        self._asked: dict[str, int] = {}
        self._matched: dict[str, int] = {}
        self._now = 0
        self._attached, self._paused = True, False
        self.told: set[tuple[str, str]] = set()

    def _leading(self) -> int:
        """Leading pages of the span that are stored, by name: pages behind a hole answer nothing."""
        return next((n for n, page in enumerate(self._span) if page not in self._stored), len(self._span))

    def drive(self, event: Event) -> Reply:
        """Bring the event about."""
        act: Callable[[Event], Reply] | None = getattr(self, f"on_{event.name}", None)
        if act is None:
            return not_said(event.name)
        of_request = WORDS[event.name].takes == "request" and event.name != "enq"
        if of_request and event.subjects[0] not in self._order:
            return Reply(Answer.ABSENT, f"{event.subjects[0]} never arrived")
        return act(event)

    def observe(self) -> Observed:
        """The model's state; what it has no variable for is not told."""
        state = self._model.state
        numbers = range(len(self._order))
        queued = any(self._state(rid) in QUEUED for rid in self._order)
        busy = any(state[f"r{i}.{name}"] for i in numbers for name in ("running", "filling", "op"))
        orphans = sum(state[f"r{i}.orphan_asking"] + (state[f"r{i}.orphan_pages"] > 0) for i in numbers)
        return Observed(
            now=self._now,
            requests={rid: self._view(rid) for rid in self._world.prompts},
            asked=dict(self._asked),
            pinned=state["pinned"],
            pin_cap=self._cap(),
            occupied=state["occupied"],
            host_free=state["host_free"],
            orphans=orphans,
            stored=frozenset(self._stored),
            idle=not (queued or busy or orphans),
            filling=sum(state[f"r{i}.filling"] for i in numbers),
            orphan_pages=sum(state[f"r{i}.orphan_pages"] for i in numbers),
        )

    def _cap(self) -> int:
        rules, world = self._rules, self._world
        longest = max(map(len, world.prompts.values()))
        fraction = int(rules.pin_fraction * world.pool)
        return max(0, min(fraction, world.pool - longest - rules.headroom_slack))

    def _view(self, rid: str) -> RequestView:
        if rid not in self._order:
            return RequestView()
        own = {name: self._of(rid, name) for name in ("attempt", "asked", "pages", "hold", "op", "marker")}
        word = self._model.word(f"r{self._order[rid]}.op")
        pinned = self._base if self._model.word(f"r{self._order[rid]}.pin") == "pinned" else 0
        return RequestView(
            self._state(rid),
            own["attempt"],
            own["marker"] > 0,
            own["asked"],
            own["op"] > 0,
            own["pages"] if word == "reading" else 0,
            own["hold"],
            pinned,
            own["hold"],
        )

    def _of(self, rid: str, name: str) -> int:
        return self._model.state[f"r{self._order[rid]}.{name}"]

    def _state(self, rid: str) -> str:
        word = self._model.word(f"r{self._order[rid]}.state")
        if word != "scheduled":
            return word
        return "running" if self._of(rid, "running") else "finished"

    def take(self, word: str, rid: str | None, suits: Callable[[Action], bool] = lambda action: True) -> bool:
        """Take an action; note the questions and the moves in it."""
        number = None if rid is None else self._order[rid]
        if self._model.take(word, number, suits) is None:
            return False
        names = {f"r{number}": rid for rid, number in self._order.items()}
        for who, row in self._model.last:
            if who in names and "ask" in row.effects:
                self._asked[names[who]] = self._asked.get(names[who], 0) + 1
                self.told.add(("issue", names[who]))
                if row.event != "issue":
                    self.told.add(("reissue", names[who]))
        return True

    def _decided(self, why: str) -> Callable[[Action], bool]:
        """Actions in which whoever could ask does or does not, as the engine decides."""
        asks = not why and self._attached
        rules = self._rules
        armed = rules.arms and (
            (why == "too_short" and rules.arms_too_short) or (why in LIMITED and rules.arms_limited)
        )

        def suits(action: Action) -> bool:
            literals = [each for _, row in self._model.rows(action) for each in row.guard]
            return all(
                each.positive == (asks if each.guard == "asks" else armed)
                for each in literals
                if each.guard in ("asks", "arms_unasked")
            )

        return suits

    def on_enq(self, event: Event) -> Reply:
        rid = event.subjects[0]
        if rid in self._order:
            over = self._state(rid) in ("finished", "aborted")
            return (
                not_said("second life of a request id") if over else Reply(Answer.REFUSED, "the id is in use")
            )
        why = event.facts.get("why", "")
        if len(self._span) < self._world.threshold:
            why = why or "too_short"
        self._order[rid] = len(self._order)
        self._matched[rid] = self._model.state["anchored"]
        self.take("enqueue", rid, self._decided(why))
        return DONE

    def on_issue(self, event: Event) -> Reply:
        return Reply(Answer.ABSENT, "no question went out")

    def on_hit(self, event: Event) -> Reply:
        rid = event.subjects[0]
        if (late := self._late(event)) is not None:
            return late
        if self._model.word(f"r{self._order[rid]}.op") != "asking":
            return Reply(Answer.ABSENT, "no question is out")
        found = self._model.state["stored"] - self._of(rid, "hold")
        if event.amount is not None and event.amount > found:
            return Reply(Answer.REFUSED, f"storage has {found} pages of it")
        if found < max(self._world.threshold, 1):
            return self.on_miss(event)
        if event.amount not in (None, found) or event.facts.get("room"):
            return not_said("storage that tells a part of what it has, or room that is there and is not")
        if self._base and not self._model.state["anchored"]:
            self.take("lose_anchor", rid)
            self.told.add(("lose", rid))
            return DONE
        if not self.take("hit", rid):
            return Reply(Answer.REFUSED, f"{self._state(rid)} takes no hit")
        word = {"transferring": "alloc", "parked": "park"}.get(self._state(rid))
        if word:
            self.told.add((word, rid))
        return DONE

    def on_miss(self, event: Event) -> Reply:
        if (late := self._late(event)) is not None:
            return late
        rid = event.subjects[0]
        if self._model.word(f"r{self._order[rid]}.op") != "asking":
            return Reply(Answer.ABSENT, "no question is out")
        return DONE if self.take("miss", rid) else not_said("miss of what is stored")

    def _late(self, event: Event) -> Reply | None:
        """The answer to a question that is no longer the request's own."""
        rid = event.subjects[0]
        if "q" not in event.facts or (
            int(event.facts["q"]) == self._asked.get(rid, 0) and self._of(rid, "op")
        ):
            return None
        asks = self._of(rid, "orphan_asking") and event.name in ("hit", "miss", "answer")
        if asks and self.take("orphan_answer", rid):
            return DONE
        return DONE if self.take("orphan_end", rid) else Reply(Answer.ABSENT, "no such question is out")

    def on_xfer(self, event: Event) -> Reply:
        reads = self._model.word(f"r{self._order[event.subjects[0]]}.op") == "reading"
        return DONE if reads else Reply(Answer.REFUSED, "nothing is being read")

    def on_done(self, event: Event) -> Reply:
        rid = event.subjects[0]
        if (late := self._late(event)) is not None:
            return late
        if event.amount not in (None, self._of(rid, "pages")):
            return not_said("read that ends with a part")
        if not self.take("done", rid):
            return Reply(Answer.ABSENT, "nothing is being read")
        self.told.add(("stage", rid))
        return DONE

    def on_fail(self, event: Event) -> Reply:
        if (late := self._late(event)) is not None:
            return late
        done = self.take("fail", event.subjects[0])
        return DONE if done else Reply(Answer.ABSENT, "nothing is being read")

    def on_discard(self, event: Event) -> Reply:
        return self.on_fail(event)

    def on_answer(self, event: Event) -> Reply:
        if (late := self._late(event)) is not None:
            return late
        word = self._model.word(f"r{self._order[event.subjects[0]]}.op")
        match word:
            case "asking":
                return self.on_hit(event)
            case "reading":
                return self.on_done(event)
        return Reply(Answer.ABSENT, "storage owes it nothing")

    def on_alloc(self, event: Event) -> Reply:
        rid = event.subjects[0]
        if self._state(rid) != "parked":
            return Reply(Answer.ABSENT, "no hit waits for room")
        if self._base and not self._model.state["anchored"]:
            self.take("lose_anchor", rid)
            self.told.add(("lose", rid))
            return Reply(Answer.ABSENT, "its base on the device is gone")
        if not self.take("unpark", rid):
            return Reply(Answer.ABSENT, "no room")
        self.told.add(("alloc", rid))
        return DONE

    def on_revoke(self, event: Event) -> Reply:
        rid = event.subjects[0]
        return DONE if self.take("revoke", rid) else Reply(Answer.ABSENT, "no hit or hold to drop")

    def _on_told(self, event: Event) -> Reply:
        return Reply(Answer.ABSENT, "it has not happened")

    on_reissue = on_park = on_stage = on_consume = on_lose = _on_told

    def on_pin(self, event: Event) -> Reply:
        return (
            SEEN if self._view(event.subjects[0]).pinned else Reply(Answer.ABSENT, "its base is not pinned")
        )

    def on_unpin(self, event: Event) -> Reply:
        return Reply(Answer.ABSENT, "its base is pinned") if self._view(event.subjects[0]).pinned else SEEN

    def on_cut(self, event: Event) -> Reply:
        return self._stop("cut", event.subjects[0], event.amount or 0)

    def on_expire(self, event: Event) -> Reply:
        return self._stop("expire", event.subjects[0], event.amount or 0)

    def _stop(self, word: str, rid: str, read: int) -> Reply:
        taken = self.take(word, rid, lambda action: (action.parameters or {}).get("read", 0) == read)
        return DONE if taken else Reply(Answer.REFUSED, f"{self._state(rid)} cannot be ended so")
