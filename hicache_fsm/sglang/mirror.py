"""A lifecycle beside a real engine: it is told what the engine does, and decides its own sweeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hicache_fsm.runtime import Anchor, AttemptKey, HiCacheLifecycle, IllegalTransition

Members = Mapping[str, Any]


class Mirror:
    """A ``Sink`` of the plugin that gives each event of the engine to a ``HiCacheLifecycle`` as a call.

    ``life`` has the engine's own profile and sizes, from ``engine`` on; ``keys`` are the newest attempts by request
    id. ``differences`` says where engine and lifecycle do not agree, one line each, and ``counts`` how much was
    compared. ``lost`` once the lifecycle refused an event, or one came that it cannot follow, as a flush: the engine is
    followed no further then.
    """

    def __init__(self) -> None:
        self.life: HiCacheLifecycle
        self.keys: dict[str, AttemptKey] = {}
        self.counts: Counter[str] = Counter()
        self.differences: list[str] = []
        self.lost = False
        self._offered: set[str] = set()
        self._anchors: dict[str, Anchor | None] = {}

    def begin_pass(self, head: str | None) -> None:
        """The engine is about to sweep its markers; ``head`` is the first request of its queue."""
        if self.lost:
            return
        offers = self.life.begin_pass(head=self.keys[head] if head is not None else None)
        self._offered = {key.rid for key in offers}
        self.counts.update({"sweeps": 1, "re-issues": len(offers)})

    def swept(self) -> None:
        """The engine has swept: every offer of the lifecycle was taken."""
        self.same("offers that the engine did not take", self._offered, set())

    def same(self, what: str, here: object, there: object) -> None:
        """Count one comparison, and note a difference."""
        self.counts["comparisons"] += 1
        if here != there and not self.lost:
            line = f"pass {self.life.now}: {what}: the lifecycle has {here}, the engine {there}"
            self.differences.append(line)

    # ---- the sink

    def engine(self, header: Members) -> None:
        self.life = HiCacheLifecycle(
            header["profile"],
            pool_tokens=header["pool_tokens"],
            max_context_len=header["pool_tokens"] - header["pin_cap_tokens"],
            page_size=header["page_size"],
            interval=header["constants"]["interval"],
            max_attempts=header["constants"]["max_attempts"],
            mode=header["mode"],
            monitor=True,
        )
        self.same("pin cap", self.life.settings.pin_cap, header["pin_cap_tokens"])

    def transition(self, pass_: int, machine: str, event: str, rid: str | None, members: Members) -> None:
        if self.lost:
            return
        self.counts["events"] += 1
        if rid is None:
            return
        try:
            self._take(machine, event, rid, members)
        except IllegalTransition as refused:
            self.lost = True
            self.differences.append(f"the engine did what the lifecycle refuses: {refused}")

    def totals(self, pass_: int, totals: Any) -> None:
        """Compared request by request, by whoever has a view of the engine."""

    def violation(self, finding: Any) -> None:
        self.differences.append(f"the plugin finds: {finding}")

    def repair(self, repair: Any) -> None:
        """Nothing is repaired in observe mode."""

    def audit(self, audit: Any) -> None:
        """Its findings came by ``violation``."""

    def close(self) -> None:
        """The lifecycle may still be asked."""

    # ---- events of docs/event-log.md

    def _take(self, machine: str, event: str, rid: str, members: Members) -> None:
        if machine == "pin" and event == "pin":
            tokens, on_device = members.get("tokens"), members["why"] != "anchor_lost"
            self._anchors[rid] = Anchor(rid, tokens, on_device) if tokens else None
        elif machine == "operation":
            end = self.life.missed if event == "stale" else self.life.failed
            end(self.keys[rid], members["op"])
        elif machine == "prefetch":
            follow = getattr(self, f"_{event}", None)
            if follow is None:
                self.lost = True
                self.differences.append(f"pass {self.life.now}: {event} of {rid} is not followed")
            else:
                follow(rid, members)

    def _enqueue(self, rid: str, members: Members) -> None:
        again = members.get("again")
        key = self.life.retract(self.keys[rid], again) if again else None
        self.keys[rid] = key or self.life.enqueue(rid, members["tokens"])
        self.same(f"attempt of {rid}", self.keys[rid].attempt, members["attempt"])

    def _issue(self, rid: str, members: Members) -> None:
        asks = members["facts"]["asks"]
        why = "" if asks else members["why"]
        op = self.life.issue(self.keys[rid], asks=asks, why=why, tokens=members.get("tokens", 0))
        self.same(f"question of {rid}", op, members.get("op"))

    def _sweep(self, rid: str, members: Members) -> None:
        """Markers that the engine consumes the lifecycle has consumed itself; re-issues are what it offered."""
        if "asks" in members["facts"]:
            self.same(f"offer to {rid}", rid in self._offered, True)
            self._offered.discard(rid)
            self._issue(rid, members)

    def _lose_match(self, rid: str, members: Members) -> None:
        asks = members.get("op") is not None
        why = "" if asks else members.get("why", "")
        op = self.life.lose_match(self.keys[rid], asks=asks, why=why, tokens=members.get("tokens", 0))
        self.same(f"question of {rid}", op, members.get("op"))

    def _hit(self, rid: str, members: Members) -> None:
        room, anchor = members["facts"]["room"], self._anchors.pop(rid, None)
        self.life.hit(
            self.keys[rid],
            members["op"],
            members["tokens"],
            members["wanted_tokens"],
            room,
            members.get("why", ""),
            anchor if room else None,
        )

    def _unpark(self, rid: str, members: Members) -> None:
        self.life.unparked(self.keys[rid], self._anchors.pop(rid, None))

    def _miss(self, rid: str, members: Members) -> None:
        self.life.missed(self.keys[rid], members["op"], members["why"])

    def _done(self, rid: str, members: Members) -> None:
        self.life.loaded(self.keys[rid], members["op"], members["tokens"])

    def _fail(self, rid: str, members: Members) -> None:
        self.life.failed(self.keys[rid], members["op"], members["why"])

    def _cut(self, rid: str, members: Members) -> None:
        self.life.cut(self.keys[rid], members.get("tokens", 0))

    def _expire(self, rid: str, members: Members) -> None:
        self.life.expire(self.keys[rid], members.get("tokens", 0))

    def _lose_anchor(self, rid: str, members: Members) -> None:
        self.life.lose_anchor(self.keys[rid])

    def _revoke(self, rid: str, members: Members) -> None:
        self.life.revoke(self.keys[rid], members["why"])

    def _shrink(self, rid: str, members: Members) -> None:
        self.life.shrink(self.keys[rid])

    def _admit(self, rid: str, members: Members) -> None:
        self.life.admit(self.keys[rid])

    def _abort(self, rid: str, members: Members) -> None:
        self.life.abort(self.keys[rid], members["why"])

    def _retract(self, rid: str, members: Members) -> None:
        """Told again by the ``enqueue`` that follows."""

    def _finish(self, rid: str, members: Members) -> None:
        self.life.finish(self.keys[rid])
