"""The runtime's attempts, operations and pins in a world with a device, a host pool and a storage that commits late."""

from collections.abc import Iterator
from itertools import product

from hicache_fsm.conform.graph import State
from hicache_fsm.conform.pools import Anchor, HostPool
from hicache_fsm.conform.runtime_side import Choice
from hicache_fsm.conform.views import pin
from hicache_fsm.model.admission.scope import Scope
from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle
from hicache_fsm.runtime.attempt import Attempt, Operation
from hicache_fsm.spec import Spec

NODE = "anchor"

ADMISSIBLE = frozenset({"queued", "missed", "pending", "exhausted", "loaded"})
"""A scan of the queue stops at a request in one of these that does not fit."""


class AdmissionDriver:
    """Requests r0, r1, ... in the queue's order; a page is a token, and every request wants the whole chain."""

    def __init__(self, spec: Spec, profile: str, scope: Scope, names: tuple[str, ...]) -> None:
        self.names = names
        self._again = spec, profile, scope, names
        self._scope = scope
        self._rules = scope.constants
        self._host = HostPool(scope.host)
        self._life = HiCacheLifecycle(
            profile,
            pool_tokens=scope.device,
            max_context_len=scope.context,
            host_tokens=scope.host,
            # Whether a hit may be parked is a constant here, and a mode in the runtime.
            mode="buffer_only" if self._rules.parks else "cache",
            spec=spec,
            executor=self._host,
        )
        self._lives = 0
        self._keys: list[AttemptKey] = []
        self._anchored = True
        self._stored = 0
        limited = self._rules.arms_limited != self._rules.arms_too_short
        self._answers = ("", "too_short", "rate_limited") if limited else ("", "too_short")

    def choices(self) -> Iterator[Choice]:
        """Everything that clients, storage, device and scheduler may do; what the world rules out is left out."""
        if len(self._keys) < self._scope.requests:
            for why in self._answers:
                yield "enqueue", len(self._keys), why
        for i in range(len(self._keys)):
            yield from self._of_request(i)
        if self._rules.sweeps and any(
            self._state(i) in ("missed", "pending") for i in range(len(self._keys))
        ):
            asked = [i for i in range(len(self._keys)) if self._state(i) in ("missed", "pending")]
            yield from (("tick", *answers) for answers in product(self._answers, repeat=len(asked)))
        waits = any(self._waits(i) for i in range(len(self._keys)))
        if waits and self._may_reset("flush", waits=waits):
            yield ("flush",)
        if (waits or self._stored) and self._may_reset("detach", waits=waits):
            yield ("detach",)
        if self._stored < self._scope.chain:
            yield ("wack",)
        yield ("evict",) if self._anchored else ("insert",)

    def take(self, choice: Choice) -> bool:
        """Do it."""
        event, rest = str(choice[0]), choice[1:]
        if rest and isinstance(rest[0], int):
            return self._take(event, rest[0], rest[1:])
        match event:
            case "tick":
                self._tick(tuple(map(str, rest)))
            case "flush":
                self._life.flush()
            case "detach":
                self._life.detach()
                self._life.attach()
                self._stored = 0
            case "wack":
                self._stored += 1
            case "insert":
                self._anchored = True
            case "evict":
                self._life.evict(NODE)
                self._anchored = False
        return True

    def label(self, choice: Choice) -> str:
        """The event, and the request if it concerns one."""
        return (
            f"{choice[0]} r{choice[1]}" if len(choice) > 1 and isinstance(choice[1], int) else str(choice[0])
        )

    def restart(self) -> "AdmissionDriver":
        """The same lifecycle with other request ids, once every request and every orphan has ended."""
        self._life.flush()
        for i, key in enumerate(self._keys):
            if self._waits(i):
                self._life.abort(key)
            elif self._running(i):
                self._life.finish(key)
            self._end_orphans(i)
        self._host.filling.clear()
        owned = (
            self._life.occupied_tokens,
            self._life.pinned_tokens,
            self._host.occupied,
            len(self._host.locked),
        )
        if any(owned) or not self._life.idle:
            return AdmissionDriver(*self._again)
        self._lives += 1
        self._keys.clear()
        self._anchored, self._stored = True, 0
        return self

    def observe(self) -> State:
        """The lifecycle's books and the world's, in the model's words."""
        values: dict[str, int | str] = {
            "anchored": int(self._anchored),
            "stored": self._stored,
            "host_free": self._host.free,
            "occupied": self._life.occupied_tokens + sum(self._host.filling.values()),
            "pinned": self._life.pinned_tokens,
        }
        for i in range(self._scope.requests):
            values |= self._request(i) if i < len(self._keys) else self._absent(i)
        return tuple(values[name] for name in self.names)

    def _may_reset(self, event: str, *, waits: bool) -> bool:
        """Whether an engine of the profile lets the flush or the detach happen."""
        under = self._rules.resets_under
        if under == "queue":
            return True
        busy = self._host.filling or any(
            self._running(i) or self._operation(i) or self._hold(i) for i in range(len(self._keys))
        )
        return not busy and (not waits or (under == "pause" and event == "flush"))

    def _of_request(self, i: int) -> Iterator[Choice]:
        """What may happen to one request that has arrived."""
        op = self._operation(i)
        off = not self._anchored
        if self._running(i):
            yield "finish", i
            if self._keys[i].attempt < self._scope.attempts - 1:
                yield from (("retract", i, why) for why in self._answers)
        if op is not None and self._waits(i):
            # What the unguarded door leaves behind stays as it is in the model; the runtime ends it when it answers.
            yield from self._of_operation(i, op, off)
        if self._state(i) == "loaded":
            yield "revoke", i
        if off:
            if not self._hold(i):
                yield from (("lose_match", i, why) for why in self._answers)
            yield "shrink", i
        if self._fits(i) and self._reached(i):
            yield "admit", i
        for event in ("abort", "abandon"):
            yield event, i
        if self._keys[i] in self._host.locked and not self._waits(i):
            yield "lapse", i
        reads = op.pages if op is not None and op.pages else 1
        for event, read in product(("cut", "expire"), range(reads)):
            yield event, i, read
        if self._orphans(i):
            yield "orphan_end", i
        if self._host.filling.get(self._rid(i)):
            yield "filled", i

    def _of_operation(self, i: int, op: Operation, off: bool) -> Iterator[Choice]:
        """What storage answers, and what the cache makes of it."""
        hold = self._hold(i)
        match self._life._core.ledger.table.states[op.state]:
            case "asking" if self._stored > hold:
                yield "hit", i
                yield from self._of_hit(i, off)
            case "asking":
                yield "miss", i
            case "known":
                if self._host.free >= min(op.tokens, op.wanted):
                    yield "unpark", i
                yield from self._of_hit(i, off)
            case "reading":
                yield "done", i
                yield "fail", i

    def _of_hit(self, i: int, off: bool) -> Iterator[Choice]:
        yield "revoke", i
        if off:
            yield "lose_anchor", i

    def _take(self, event: str, i: int, rest: Choice) -> bool:
        life = self._life
        if event == "enqueue":
            self._keys.append(life.enqueue(self._rid(i), self._scope.chain))
            return self._issue(i, str(rest[0]))
        if event == "filled":
            del self._host.filling[self._rid(i)]
            return True
        key, op = self._keys[i], life.operation(self._keys[i])
        match event:
            case "retract":
                self._keys[i] = life.retract(key) or key
                return self._issue(i, str(rest[0]))
            case "finish":
                return life.finish(key)
            case "hit":
                stored, wanted = self._stored - self._hold(i), self._scope.chain - self._hold(i)
                return life.hit(key, op or 0, stored, wanted, room=self._host.free >= stored)
            case "miss":
                return life.missed(key, op or 0)
            case "unpark":
                return life.unparked(key)
            case "done":
                return life.loaded(key, op or 0)
            case "fail":
                return life.failed(key, op or 0)
            case "cut":
                return life.cut(key, int(str(rest[0])))
            case "expire":
                return life.expire(key, int(str(rest[0])))
            case "lose_match":
                why = str(rest[0])
                life.lose_match(key, asks=not why, why=why, anchor=self._anchor(i))
                return self._rules.requeries_lost_match
            case "admit":
                life.admit(key)
                return True
            case "lapse":
                return life._core.pins.lapse(self._attempt(i)) is not None
            case "orphan_end":
                self._end_orphans(i)
                return True
        return bool(getattr(life, event)(key))

    def _issue(self, i: int, why: str) -> bool:
        self._life.issue(self._keys[i], asks=not why, why=why, anchor=self._anchor(i))
        return True

    def _tick(self, answers: tuple[str, ...]) -> None:
        """One pass; those that it returns ask again or decline, in the queue's order."""
        pool = [i for i in range(len(self._keys)) if self._state(i) in ("missed", "pending")]
        decided = dict(zip(pool, answers, strict=True))
        heads = [self._keys[i] for i in range(len(self._keys)) if self._waits(i)]
        offered = self._life.begin_pass(head=heads[0] if heads else None)
        for i in pool:
            if self._keys[i] in offered:
                self._issue(i, decided[i])

    def _end_orphans(self, i: int) -> None:
        """All that still answer for the request do: the model takes a request's orphans for one."""
        for op in self._orphans(i):
            if op.pages:
                self._life.loaded(op.attempt.key, op.number)
            else:
                self._life.missed(op.attempt.key, op.number)

    def _anchor(self, i: int) -> Anchor:
        return Anchor(NODE, self._scope.anchors[i], on_device=self._anchored)

    def _fits(self, i: int) -> bool:
        """Whether the device has room for the request beside what others pin and run."""
        own = self._host.locked.get(self._keys[i], 0)
        running = sum(self._running(j) for j in range(len(self._keys))) * self._scope.demand
        return self._life.pinned_tokens - own + running + self._scope.demand <= self._scope.device

    def _reached(self, i: int) -> bool:
        return all(self._state(j) not in ADMISSIBLE for j in range(i))

    def _rid(self, i: int) -> str:
        return f"{self._lives}r{i}"

    def _attempt(self, i: int) -> Attempt:
        attempt = self._life._core.find(self._keys[i])
        assert attempt is not None
        return attempt

    def _state(self, i: int) -> str:
        return self._life.state(self._keys[i]) or "absent"

    def _waits(self, i: int) -> bool:
        return self._keys[i] in self._life._core.queue

    def _running(self, i: int) -> bool:
        return self._keys[i] in self._life._core.running

    def _operation(self, i: int) -> Operation | None:
        return self._attempt(i).op

    def _hold(self, i: int) -> int:
        return self._attempt(i).hold_pages

    def _orphans(self, i: int) -> list[Operation]:
        operations = self._life._core.ledger.operations
        return [operations[n] for n in self._life.orphans if operations[n].attempt.key.rid == self._rid(i)]

    def _absent(self, i: int) -> dict[str, int | str]:
        values: dict[str, int | str] = {name: 0 for name in self.names if name.startswith(f"r{i}.")}
        return values | {
            f"r{i}.state": "absent",
            f"r{i}.op": "none",
            f"r{i}.marker": "none",
            f"r{i}.pin": "free",
        }

    def _request(self, i: int) -> dict[str, int | str]:
        attempt, state, orphans = self._attempt(i), self._state(i), self._orphans(i)
        live = self._waits(i) or self._running(i)
        op = attempt.op
        phase = "none" if op is None else self._life._core.ledger.table.states[op.state]
        hit = 0 if op is None else op.pages if phase == "reading" else min(op.tokens, op.wanted)
        own: dict[str, int | str] = {
            "state": state,
            "running": int(self._running(i)),
            "attempt": self._keys[i].attempt if live else 0,
            "asked": attempt.spent if live else 0,
            "waited": self._life.now - attempt.swept + 1 if state == "pending" else 0,
            "marker": f"attempt {self._keys[i].attempt}" if attempt.marker else "none",
            "immediate": int(attempt.marker and attempt.immediate),
            "op": phase,
            "pages": hit,
            "orphan_asking": int(any(not orphan.pages for orphan in orphans)),
            "orphan_pages": sum(orphan.pages for orphan in orphans),
            "hold": attempt.hold_pages,
            "filling": self._host.filling.get(self._rid(i), 0),
            "pin": self._pin(i, attempt, state),
        }
        return {f"r{i}.{name}": value for name, value in own.items()}

    def _pin(self, i: int, attempt: Attempt, holder: str) -> str:
        if self._keys[i] in self._host.locked:
            return "pinned"
        return (
            "free"
            if attempt.pin is None
            else pin(self._life._core.pins.table.states[attempt.pin.state], holder)
        )
