"""What a scheduler embeds: the life of every request's storage prefetch, checked step by step."""

from collections import Counter
from dataclasses import replace
from typing import Final

from hicache_fsm.runtime.answers import Answers
from hicache_fsm.runtime.attempt import Anchor, Attempt, AttemptKey
from hicache_fsm.runtime.audit import audit, repair
from hicache_fsm.runtime.beliefs import Beliefs
from hicache_fsm.runtime.cacheside import CacheSide
from hicache_fsm.runtime.core import Core
from hicache_fsm.runtime.executor import Executor, NullExecutor
from hicache_fsm.runtime.guards import Moment, moment_of
from hicache_fsm.runtime.listener import Listener
from hicache_fsm.runtime.log import Log
from hicache_fsm.runtime.monitor import Violation, watcher
from hicache_fsm.runtime.numbers import AttemptNumbers
from hicache_fsm.runtime.settings import HostMode, OnIllegal, Settings, pin_cap
from hicache_fsm.runtime.spelling import text
from hicache_fsm.runtime.sweep import Sweeper
from hicache_fsm.runtime.words import ANCHOR_LOST, BELOW_THRESHOLD, RETRACTED, STORAGE_OFF, check_reason
from hicache_fsm.spec import Profile, Spec, load_spec

ASKS: Final = (',"facts":{"asks":false}', ',"facts":{"asks":true}')
ASKS_AGAIN: Final = (
    ',"facts":{"asks":false,"head_exempt":false}',
    ',"facts":{"asks":true,"head_exempt":false}',
)


class HiCacheLifecycle(CacheSide):
    """The lifecycles of one scheduler.

    Synchronous: every method but `post` belongs to the scheduler's thread, and none may be called from an
    effect. All spans are tokens, waits are scheduling passes. A method that takes an event raises
    IllegalTransition if the machine does not allow it (strict mode; otherwise it is counted in `illegal`,
    told once and has no effect), and what the executor raises, after which the state is the old one and
    nothing acquired is kept.
    """

    def __init__(
        self,
        profile: Profile | str = "recommended",
        *,
        pool_tokens: int,
        max_context_len: int | None,
        allow_unknown_context: bool = False,
        host_tokens: int | None = None,
        page_size: int = 1,
        mode: HostMode = "buffer_only",
        interval: int | None = None,
        max_attempts: int | None = None,
        on_illegal: OnIllegal = "strict",
        executor: Executor | None = None,
        log: Log | None = None,
        monitor: bool = False,
        spec: Spec | None = None,
    ) -> None:
        """`profile` names the rules; `interval` (passes) and `max_attempts` override two of its constants.

        `pool_tokens` is the device pool, `host_tokens` the host pool (None: not counted). An unknown context
        length must be admitted by `allow_unknown_context`: pins then leave no headroom and may wedge
        admission (#37464). Raises ValueError for an unknown profile, an unknown context length or numbers
        that make no sense.
        """
        spec = load_spec() if spec is None else spec
        if isinstance(profile, str):
            if profile not in spec.profiles:
                raise ValueError(
                    f'unknown profile "{profile}": use one of {", ".join(sorted(spec.profiles))}'
                )
            profile = spec.profiles[profile]
        constants = profile.constants
        if interval is not None:
            constants = replace(constants, interval=interval)
        if max_attempts is not None:
            constants = replace(constants, max_attempts=max_attempts)
        if (
            page_size < 1
            or min(constants.interval, constants.max_attempts, pool_tokens, host_tokens or 0) < 0
        ):
            raise ValueError(
                "page_size counts from 1 up, interval, max_attempts and the pools' tokens from 0 up"
            )
        cap = pin_cap(constants, pool_tokens, page_size, max_context_len, allow_unknown_context)
        self.settings = Settings(
            profile.name, constants, mode, on_illegal, page_size, pool_tokens, cap, host_tokens
        )
        self._log = log
        self.monitor = watcher(self.settings, spec.machines["prefetch"]) if monitor else None
        self._core = Core(spec, self.settings, executor or NullExecutor(), log, self.monitor)
        core = self._core
        self.beliefs = Beliefs(
            spec.machines["belief"],
            constants,
            core.journal,
            core.executor,
            core.rollback,
            active=mode == "buffer_only",
        )
        self._answers = Answers(core, self.beliefs)
        self._sweeper = Sweeper(core)
        self._numbers = AttemptNumbers()
        self._enqueued = 0
        self._sweeps = constants.sweeps
        self._enforces = on_illegal == "enforce"
        self._events = core.table.event_ids
        self._issue, self._sweep, self._admit = (self._events[name] for name in ("issue", "sweep", "admit"))
        self._page_size = page_size
        self.attached = True
        self.repairs: Counter[str] = Counter()
        self.post = self._answers.post
        self._posted = self._answers.posted
        if log is not None:
            log.header(self.settings)

    def enqueue(self, rid: str, tokens: int, *, again: str = "") -> AttemptKey:
        """A request of so many prompt tokens joins the queue. Returns the key of this attempt.

        `again` is why a request that was queued before comes back; `retract` says it for a running one. Here as
        there the profile says whether its budget starts anew; the newest 256 ended attempts are remembered for it.
        Raises ValueError for an unknown reason. A request id that is still queued or running is illegal; outside
        strict mode the attempt that has it is then kept.
        """
        if again:
            check_reason("enqueue", again)
        core = self._core
        newest = core.newest.get(rid)
        if newest is not None:
            state = core.table.states[newest.state]
            reason = f'prefetch: "enqueue" in "{state}" is illegal: the id is still in use'
            core.object("prefetch", "enqueue", state, newest.key, reason)
            return newest.key
        before = core.find(AttemptKey(rid, self._numbers.newest(rid))) if again else None
        kept = before is not None and not self.settings.constants.renews_budget(again)
        return self._begin(rid, tokens, before.spent if before is not None and kept else 0, again)

    def issue(
        self,
        key: AttemptKey,
        *,
        asks: bool = True,
        why: str = "",
        tokens: int = 0,
        anchor: Anchor | None = None,
    ) -> int | None:
        """Ask storage for the attempt's span of `tokens`, or decline to (`asks` False, with `why`).

        The first question, and those that `begin_pass` returned. The anchor is pinned at once where the
        profile pins early (#36227). Returns the operation's number, None if no question went out.
        """
        core = self._core
        attempt = core.queue.get(key) or self._find(key, "issue")
        if attempt is None:
            return None
        if not self.attached:
            asks, why = False, STORAGE_OFF
        if not asks:
            check_reason("issue", why)
        moment = moment_of(core.journal.now, why)
        moment.asks = asks
        moment.tokens = tokens or attempt.tokens
        moment.anchor = anchor
        if attempt.offered >= 0 and self._sweeper.is_offered(attempt):
            moment.facts = ASKS_AGAIN[asks]
            return self._ask(attempt, self._sweep, moment)
        moment.facts = ASKS[asks]
        return self._ask(attempt, self._issue, moment)

    def lose_match(
        self,
        key: AttemptKey,
        *,
        asks: bool = True,
        why: str = "",
        tokens: int = 0,
        anchor: Anchor | None = None,
    ) -> int | None:
        """At admission the device holds less of the prefix than before: ask for what was lost.

        As `issue`, without `asks` the question is declined for the reason `why`. Returns the operation's
        number; None if nothing was asked: declined, the budget is spent, storage is detached or the profile
        never asks then.
        """
        attempt = self._find(key, "lose_match")
        if attempt is None or not self.attached or not self.settings.constants.requeries_lost_match:
            return None
        moment = moment_of(self._core.journal.now, why)
        moment.asks = asks
        moment.tokens = tokens or attempt.tokens
        moment.anchor = anchor
        return self._ask(attempt, self._events["lose_match"], moment)

    def begin_pass(self, *, head: AttemptKey | None = None, drain: int | None = None) -> list[AttemptKey]:
        """One scheduling pass: take in what I/O threads posted, then sweep the markers.

        Returns the attempts to ask again, in queue order, for `issue`; one that is not served is returned
        again by the next pass. `head` is the first of the queue where a policy reorders it, `drain` how many
        posted answers to take in (all by default), which ranks must agree on. A pass with nothing due costs
        the same however many wait.
        """
        core = self._core
        journal = core.journal
        now = journal.now = journal.now + 1
        if core.told:
            journal.begin(now)
        if self._posted() or self._answers.again:
            self._answers.drain(drain)
        if core.leaks and self._enforces:
            self.repair()
        if self._sweeps:
            offers = self._sweeper.sweep(now, head)
        else:
            core.pacing.take_raised()  # markers that a profile raises all the same serve nobody
            offers = []
        if core.told:
            journal.passed()
        return offers

    def admit(self, key: AttemptKey) -> int:
        """The request joins a batch.  Returns the tokens of its hold, which goes to the device."""
        core = self._core
        attempt = core.queue.get(key) or self._find(key, "admit")
        if attempt is None:
            return 0
        tokens = attempt.hold_pages * self._page_size
        moment = moment_of(core.journal.now)
        moment.tokens = tokens
        return tokens if core.step(attempt, self._admit, moment) else 0

    def abort(self, key: AttemptKey, why: str = "client") -> bool:
        """The request leaves the queue.  Raises ValueError for an unknown reason."""
        return self._simple(key, "abort", check_reason("abort", why))

    def abandon(self, key: AttemptKey) -> bool:
        """The request leaves by the over-capacity door of a disaggregated prefill, unguarded upstream."""
        return self._simple(key, "abandon")

    def retract(self, key: AttemptKey, again: str = RETRACTED) -> AttemptKey | None:
        """A running request leaves its batch and is queued again.  Returns the key of its next attempt.

        The budget starts anew where the profile says so: by its own rules for every reason, upstream only for a
        request that was retracted, not for one preempted or paused.  Raises ValueError for an unknown reason.
        """
        check_reason("enqueue", again)
        attempt = self._leave_batch(key, "retract")
        if attempt is None:
            return None
        spent = 0 if self.settings.constants.renews_budget(again) else attempt.spent
        return self._begin(key.rid, attempt.tokens, spent, again, after=key.attempt)

    def finish(self, key: AttemptKey) -> bool:
        """A running request is done, or was aborted while it ran."""
        return self._leave_batch(key, "finish") is not None

    def hit(
        self,
        key: AttemptKey,
        op: int,
        stored_tokens: int,
        wanted_tokens: int,
        room: bool = True,
        why: str = "",
        anchor: Anchor | None = None,
    ) -> bool:
        """Storage has `stored_tokens` of `wanted_tokens`; `room` says whether they may be fetched now.

        `why` is the reason where there is no room; a host pool that is counted and full leaves none by
        itself. The pin gets its second chance, on `anchor` if the span was matched anew, else on the one of
        the question (#36227). Raises ValueError for an unknown reason, and for `pin_cap` under a profile that
        pins early: two hits that keep a pin and wait for pins would wait for each other.
        """
        if why:
            check_reason("hit", why)
        moment = self._answers.hit(op, stored_tokens, wanted_tokens, room, why)
        moment.anchor = anchor
        return self._answers.take(op, "hit", moment, key)

    def missed(self, key: AttemptKey, op: int, why: str = BELOW_THRESHOLD) -> bool:
        """Storage has less than the threshold, or the controller ended the question."""
        return self._answers.take(
            op, "miss", moment_of(self._core.journal.now, check_reason("miss", why)), key
        )

    def loaded(self, key: AttemptKey, op: int, tokens: int = 0) -> bool:
        """The read ended with `tokens` usable (0: all of them), which become the attempt's hold."""
        return self._answers.take(op, "done", self._answers.done(op, tokens), key)

    def failed(self, key: AttemptKey, op: int, why: str = "read_error") -> bool:
        """The read ended with nothing usable."""
        return self._answers.take(
            op, "fail", moment_of(self._core.journal.now, check_reason("fail", why)), key
        )

    def unparked(self, key: AttemptKey, anchor: Anchor | None = None) -> bool:
        """Try a parked hit: its pages are taken and its read starts.  False while there is no room."""
        attempt = self._find(key, "unpark")
        if attempt is None:
            return False
        moment = (
            moment_of(self._core.journal.now) if attempt.op is None else self._answers.unparked(attempt.op)
        )
        if moment is None:
            return False
        moment.anchor = anchor
        return self._core.step(attempt, self._events["unpark"], moment)

    def lose_anchor(self, key: AttemptKey) -> bool:
        """The node that the span hangs on is gone: a fetch would have nothing to graft on."""
        return self._simple(key, "lose_anchor", ANCHOR_LOST)

    def revoke(self, key: AttemptKey, why: str = "device_covered") -> bool:
        """A known hit is not worth fetching.  Raises ValueError for an unknown reason."""
        return self._simple(key, "revoke", check_reason("revoke", why))

    def shrink(self, key: AttemptKey) -> bool:
        """The device base under a hold shrank, so the hold no longer fits and goes back."""
        return self._simple(key, "shrink", ANCHOR_LOST)

    def cut(self, key: AttemptKey, read_tokens: int = 0) -> bool:
        """The stop policy ends the wait; `read_tokens` are in host pages already and become the hold."""
        return self._stop(key, "cut", read_tokens)

    def expire(self, key: AttemptKey, read_tokens: int = 0) -> bool:
        """The deadline passed: as `cut`, but a deadline is no miss and never asks again."""
        return self._stop(key, "expire", read_tokens)

    def flush(self) -> None:
        """The cache is reset under the queue: attempts start over, their operations become orphans."""
        self._everyone("flush")
        self.beliefs.everywhere("reset")

    def detach(self) -> None:
        """The storage backend goes: as `flush`, and nothing is asked until `attach`."""
        self.attached = False
        self._everyone("detach")
        self.beliefs.everywhere("detach")

    def attach(self) -> None:
        """A storage backend came."""
        self.attached = True

    def listen(self, listener: Listener) -> None:
        """Tell the listener everything from here on."""
        self._core.journal.listeners += (listener,)
        self._core.told = True

    def repair(self) -> int:
        """Take from ended attempts what they still own, as enforce mode does with every pass.

        Returns how many things were taken; `repairs` counts them by kind.
        """
        taken = repair(self._core)
        self.repairs += taken
        return taken.total()

    def check(self) -> list[Violation]:
        """Every violation the monitor kept, and a full audit of the books now.  Costs what is queued."""
        seen = list(self.monitor.violations) if self.monitor is not None else []
        return seen + audit(self._core)

    def close(self) -> None:
        """End the event log with its trailer and close it.  The lifecycle itself goes on without a log."""
        if self._log is None:
            return
        owners = [*self._core.queue.values(), *self._core.leaks.values()]
        residue = {
            "markers": sum(attempt.marker for attempt in owners),
            "entries": sum(attempt.op is not None for attempt in owners),
            "holds": sum(attempt.hold for attempt in owners),
            "pinned_tokens": self.pinned_tokens,
            "occupied_tokens": self.occupied_tokens,
        }
        self._log.trailer(self._core.journal.now, idle=self.idle, residue=residue)
        self._log.close()
        self._log = None
        self._core.journal.without_log()
        self._core.told = self._core.journal.heard

    def _begin(self, rid: str, tokens: int, spent: int, again: str, after: int = -1) -> AttemptKey:
        key = AttemptKey(rid, self._numbers.take(rid, after))
        self._enqueued += 1
        tag = f'"rid":{text(rid)},"attempt":{key.attempt}' if self._log is not None else ""
        self._core.begin(Attempt(key, tokens, self._enqueued, self._core.table.initial, tag, spent), again)
        return key

    def _simple(self, key: AttemptKey, event: str, why: str = "") -> bool:
        attempt = self._find(key, event)
        return attempt is not None and self._core.step(
            attempt, self._events[event], moment_of(self._core.journal.now, why)
        )

    def _stop(self, key: AttemptKey, event: str, read_tokens: int) -> bool:
        attempt = self._find(key, event)
        if attempt is None:
            return False
        pages = read_tokens // self.settings.page_size
        owned = attempt.op.pages if attempt.op is not None else 0
        if not 0 <= pages <= owned:
            raise ValueError(f"{key} cannot have read {pages} pages: it owns {owned}")
        moment = moment_of(self._core.journal.now)
        moment.tokens = read_tokens
        moment.pages = pages
        return self._core.step(attempt, self._events[event], moment)

    def _ask(self, attempt: Attempt, event: int, moment: Moment) -> int | None:
        core = self._core
        before = core.ledger.last_op
        taken = core.step(attempt, event, moment)
        after = core.ledger.last_op
        return after if taken and after > before else None

    def _leave_batch(self, key: AttemptKey, event: str) -> Attempt | None:
        core = self._core
        attempt = core.running.pop(key, None)
        if attempt is None:
            state = self.state(key) or "unknown"
            core.object(
                "prefetch", event, state, key, f'prefetch: "{event}" is illegal: the attempt is not running'
            )
            return None
        core.journal.left(attempt, event)
        core.forget(attempt)
        return attempt

    def _everyone(self, event: str) -> None:
        for attempt in list(self._core.queue.values()):
            self._core.step(attempt, self._events[event], moment_of(self._core.journal.now))
