"""Storage's answers: whose they are, and what becomes of those that nobody waits for any more."""

from queue import SimpleQueue

from hicache_fsm.runtime.attempt import Attempt, AttemptKey, Operation
from hicache_fsm.runtime.beliefs import Beliefs
from hicache_fsm.runtime.completions import Completion, WriteCompletion
from hicache_fsm.runtime.core import Core
from hicache_fsm.runtime.errors import IllegalTransition, WrongAnswer
from hicache_fsm.runtime.guards import Moment, moment_of
from hicache_fsm.runtime.words import (
    BELOW_THRESHOLD,
    HOST_CAPACITY,
    PARTIAL_HIT,
    PIN_CAP,
    TERMINATED,
    check_reason,
)

ROOM = (',"facts":{"room":false}', ',"facts":{"room":true}')


class Answers:
    """Matches an answer by its operation, never by its request id unless the profile does (#39318).

    `posted` counts what threads posted, `again` are answers taken out whose effect failed.
    """

    def __init__(self, core: Core, beliefs: Beliefs) -> None:
        self._core = core
        self._beliefs = beliefs
        self._events = core.table.event_ids
        self._inbox: SimpleQueue[Completion | WriteCompletion] = SimpleQueue()
        self.again: list[Completion | WriteCompletion] = []
        self.post = self._inbox.put
        self.posted = self._inbox.qsize
        self._page_size = core.settings.page_size
        self._capacity = core.settings.host_pages
        self._asking = core.ledger.table.state_ids["asking"]
        self._terminal = core.table.terminal
        self.stale = 0

    def __len__(self) -> int:
        """Answers posted and not taken in."""
        return self._inbox.qsize() + len(self.again)

    def drain(self, limit: int | None) -> None:
        """Take in up to `limit` posted answers.

        One whose effect failed is kept for the next time, and the error raised.
        """
        left = len(self) if limit is None else min(limit, len(self))
        while left > 0:
            left -= 1
            answer = self.again.pop(0) if self.again else self._inbox.get_nowait()
            try:
                self._deliver(answer)
            except (IllegalTransition, WrongAnswer):
                raise
            except BaseException:
                self.again.insert(0, answer)
                raise

    def take(self, number: int, event: str, moment: Moment, key: AttemptKey | None = None) -> bool:
        """An answer of operation `number`.  False if it was illegal or no attempt waits for it."""
        core = self._core
        op = core.ledger.operations.get(number)
        if op is None:
            subject = key if key is not None else f"operation {number}"
            core.object(
                "operation", "end", "ended", subject, f'operation {number} is over: "{event}" is illegal'
            )
            return False
        attempt = op.attempt
        if attempt.op is op and attempt.state not in self._terminal:
            return core.step(attempt, self._events[event], moment)
        stale = False
        if attempt.op is op:
            self._let_go(op)
        else:
            stale = self._mistake(op, event, moment)
        if op.number in core.ledger.operations:
            core.end_orphan(op, stale=stale)
        return False

    def hit(self, number: int, stored: int, wanted: int, room: bool, why: str) -> Moment:
        """The moment of a hit of so many tokens; a counted host pool that is full leaves no room.

        Raises ValueError for a hit that is to wait for the pin budget under a profile that pins early.
        """
        if not room:
            self._may_wait(why)
        pages = -(-(stored if stored < wanted else wanted) // self._page_size)
        if room and self._capacity is not None and not self.host_has(pages):
            room, why = False, HOST_CAPACITY
        op = self._core.ledger.operations.get(number)
        # A second answer to a parked operation is refused, so it must not change what is known of the first.
        if op is not None and op.state == self._asking:
            op.tokens, op.wanted = stored, wanted
        return self._fetched(room, stored, wanted, pages, "" if room else why)

    def unparked(self, op: Operation) -> Moment | None:
        """The moment of a parked hit's turn, None if the host pool or the executor has no room for it."""
        pages = self._core.settings.pages(min(op.tokens, op.wanted))
        if not self.host_has(pages):
            return None
        why = self._core.executor.room(op.attempt.key, pages)
        if why:
            self._may_wait(why)
            return None
        return self._fetched(True, op.tokens, op.wanted, pages)

    def done(self, number: int, tokens: int) -> Moment:
        """The moment of a read that ended with so many usable tokens, 0 for all.

        Raises ValueError for more than all, unless nobody waits for the read any more.
        """
        op = self._core.ledger.operations.get(number)
        owned = op.pages if op is not None else 0
        pages = -(-tokens // self._page_size) if tokens else owned
        if op is not None and op.attempt.op is op and pages > owned:
            raise WrongAnswer(f"operation {number} cannot have loaded {pages} pages: it owns {owned}")
        moment = moment_of(self._core.journal.now)
        if op is not None and op.attempt.partial:
            moment.why = PARTIAL_HIT
        moment.tokens = pages * self._page_size
        moment.pages = pages
        return moment

    def host_has(self, pages: int) -> bool:
        """Whether the host pool, if it is counted, has so many pages free."""
        return self._capacity is None or self._core.ledger.occupied_pages + pages <= self._capacity

    def _may_wait(self, why: str) -> None:
        if why == PIN_CAP and self._core.settings.constants.pins_early:
            raise ValueError(
                "no hit may wait for the pin budget where pins are early: it keeps its own pin meanwhile, and two that "
                "do so hold and wait; let it go on unpinned (a pin over the cap is `capped`)"
            )

    def _fetched(self, room: bool, stored: int, wanted: int, pages: int, why: str = "") -> Moment:
        moment = moment_of(self._core.journal.now, why)
        moment.facts = ROOM[room]
        moment.room = room
        moment.tokens = stored
        moment.wanted = wanted
        moment.pages = pages
        return moment

    def _deliver(self, answer: Completion | WriteCompletion) -> None:
        if isinstance(answer, WriteCompletion):
            self._beliefs.answer("stored" if answer.ok else "write_failed", answer.pool, answer.pages)
        else:
            self.take(answer.op, answer.event, self._moment(answer))

    def _moment(self, answer: Completion) -> Moment:
        match answer.event:
            case "hit":
                op = self._core.ledger.operations.get(answer.op)
                wanted = answer.wanted or answer.tokens
                pages = self._core.settings.pages(min(answer.tokens, wanted))
                why = self._core.executor.room(op.attempt.key, pages) if op is not None else ""
                return self.hit(answer.op, answer.tokens, wanted, not why, why)
            case "miss":
                return moment_of(self._core.journal.now, check_reason("miss", answer.why or BELOW_THRESHOLD))
            case "done":
                return self.done(answer.op, answer.tokens)
            case "fail":
                return moment_of(self._core.journal.now, check_reason("fail", answer.why or "read_error"))

    def _let_go(self, op: Operation) -> None:
        """The attempt is over and never let go of its operation: it is an orphan from here on."""
        attempt = op.attempt
        self._core.executor.orphan_operation(attempt.key, op.number)
        self._core.ledger.terminate(op)
        attempt.op = None
        if not attempt.residue:
            self._core.leaks.pop(attempt.key, None)

    def _mistake(self, op: Operation, event: str, moment: Moment) -> bool:
        """Where the profile looks answers up by request id, take an orphan's for the newer question (#39318).

        Only a question's answer is mistaken: the acknowledgements of a read name their operation.
        """
        core = self._core
        victim = core.newest.get(op.attempt.key.rid)
        if core.settings.constants.scope != "rid" or event not in ("hit", "miss") or op.pages:
            return False
        if victim is None or victim.op is None or not self._expects(victim):
            return False
        self.stale += 1
        core.journal.stale(op, victim)
        mistaken = moment_of(moment.now, TERMINATED)
        mistaken.answered = op
        core.step(victim, self._events["miss"], mistaken)
        return True

    def _expects(self, victim: Attempt) -> bool:
        return bool(self._core.table.rows(victim.state, self._events["miss"]))
