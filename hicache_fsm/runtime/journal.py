"""Tells the event log, the monitor and other listeners what happened, in the order in which it happened."""

from typing import Final

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.runtime import spelling
from hicache_fsm.runtime.attempt import Attempt, Node, Operation, PinPlan
from hicache_fsm.runtime.decision import Way
from hicache_fsm.runtime.guards import Moment
from hicache_fsm.runtime.ledger import Ledger
from hicache_fsm.runtime.listener import Listener
from hicache_fsm.runtime.log import Log
from hicache_fsm.runtime.monitor import Monitor

WHOLE: Final = {
    event: f'"machine":"prefetch","event":"{event}",' for event in ("enqueue", "retract", "finish")
}
"""What befalls a whole attempt and no machine, as log text."""


class Journal:
    """Any listener may be missing.  `now` is the scheduling pass, from 0."""

    __slots__ = ("_at", "_ledger", "_log", "_note", "_prefetch", "listeners", "monitor", "now")

    def __init__(
        self,
        table: CompiledMachine,
        ledger: Ledger,
        page_size: int,
        log: Log | None,
        monitor: Monitor | None,
    ) -> None:
        self._ledger = ledger
        self._prefetch = spelling.prefetch(table, page_size)
        self._log = log
        self._note = None if log is None else log.note
        self.monitor = monitor
        self.listeners: tuple[Listener, ...] = ()
        self.begin(0)
        if monitor is not None and log is not None:
            monitor.alarm = log.alarm

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._log is not None or self.monitor is not None or self.listeners)

    def without_log(self) -> None:
        """Nothing is logged from here on."""
        self._log = self._note = None

    def begin(self, now: int) -> None:
        """Pass `now` begins."""
        self.now = now
        self._at = f'"pass":{now},'

    def passed(self) -> None:
        """The pass has been swept: what is logged up to here is written."""
        if self._log is not None:
            self._log.flush()
        for each in self.listeners:
            each.passed(self.now)

    def stepped(self, attempt: Attempt, moment: Moment, way: Way, op: Operation | None) -> None:
        """One prefetch transition; `op` is the operation that it was about, None if none was."""
        number = 0 if op is None else op.number
        note = self._note
        if note is not None:
            ledger = self._ledger
            note(
                (
                    self._prefetch,
                    self._at,
                    way.text,
                    attempt.tag,
                    moment.facts,
                    number,
                    moment.why,
                    moment.tokens,
                    moment.wanted,
                    attempt.op is not None,
                    attempt.marker,
                    attempt.state,
                    attempt.hold,
                    attempt.spent,
                    ledger.pinned_tokens,
                    ledger.occupied_pages,
                )
            )
        if self.monitor is not None:
            self.monitor.step(self.now, attempt.key, way.row.transition, number, moment.pages)
        for each in self.listeners:
            each.stepped(self.now, attempt, moment, way.row, op)

    def queued(self, attempt: Attempt, again: str) -> None:
        """An attempt began."""
        if self._note is not None:
            more = f',"again":"{again}"' if again else ""
            self._whole("enqueue", attempt, f',"tokens":{attempt.tokens}{more}')
        if self.monitor is not None:
            self.monitor.begin(attempt.key, attempt.spent)
        for each in self.listeners:
            each.queued(self.now, attempt, again)

    def left(self, attempt: Attempt, event: str) -> None:
        """A running request left the batch: `retract` or `finish`."""
        if self._note is not None:
            self._whole(event, attempt, "")
        for each in self.listeners:
            each.left(self.now, attempt, event)

    def illegal(self, machine: str, event: str, tag: str) -> None:
        """An event that its machine does not allow: observed, not followed."""
        if self._log is not None:
            self._log.note((spelling.illegal, self._at, machine, event, tag))
            self._log.alarm()
        for each in self.listeners:
            each.refused(self.now, machine, event)

    def orphan_ended(self, op: Operation, *, freed: bool, stale: bool) -> None:
        """An orphan answered for the last time; a stale answer has its line already."""
        if not stale:
            self._operation("end", op)
        if self.monitor is not None:
            self.monitor.orphan_ended(self.now, op.attempt.key, op.number, freed=freed)

    def stale(self, op: Operation, victim: Attempt) -> None:
        """An orphan's answer is about to be taken for its id's newer question."""
        self._operation("stale", op, victim)
        if self.monitor is not None:
            self.monitor.stale(self.now, victim.key, op.number)

    def pinned(self, plan: PinPlan) -> None:
        """The answer to a pin."""
        attempt, tokens = plan.attempt, plan.anchor.tokens
        if self._note is not None:
            total = self._ledger.pinned_tokens
            self._note((spelling.pinned, self._at, attempt.tag, plan.anchored, tokens, plan.why, total))
        if self.monitor is not None and "lock_anchor" in plan.row.transition.effects:
            self.monitor.pinned(self.now, attempt.key, tokens)
        for each in self.listeners:
            each.pinned(self.now, plan)

    def unpinned(self, attempt: Attempt, event: str, tokens: int) -> None:
        """A held pin was given back, by its holder (`unpin`) or for it (`lapse`)."""
        if self._note is not None:
            total = self._ledger.pinned_tokens
            self._note((spelling.unpinned, self._at, event, attempt.tag, tokens, total))
        if self.monitor is not None:
            self.monitor.unpinned(self.now, attempt.key, tokens)
        for each in self.listeners:
            each.unpinned(self.now, attempt, event, tokens)

    def node(self, event: str, node: Node, tokens: int) -> None:
        """Something happened to a node."""
        if self._note is not None:
            # Its name, so that a log in memory keeps no node alive.
            self._note((spelling.node, self._at, event, str(node), tokens))
        for each in self.listeners:
            each.node(self.now, event, node, tokens)

    def believed(self, event: str, pool: str, pages: int, lowered: int = 0, keep: int | None = None) -> None:
        """Something happened to beliefs about so many pages of a pool, `lowered` of which are no longer held."""
        if self._note is not None:
            self._note((spelling.believed, self._at, event, pool, pages, keep))
        for each in self.listeners:
            each.believed(self.now, event, pool, pages, lowered)

    def _whole(self, event: str, attempt: Attempt, more: str) -> None:
        """Note what befell a whole attempt, `more` as log text."""
        note, ledger = self._note, self._ledger
        if note is not None:
            note(
                (
                    self._prefetch,
                    self._at,
                    WHOLE[event],
                    attempt.tag,
                    more,
                    0,
                    "",
                    0,
                    0,
                    attempt.op is not None,
                    attempt.marker,
                    attempt.state,
                    attempt.hold,
                    attempt.spent,
                    ledger.pinned_tokens,
                    ledger.occupied_pages,
                )
            )

    def _operation(self, event: str, op: Operation, victim: Attempt | None = None) -> None:
        if self._note is not None:
            tag = (victim or op.attempt).tag
            self._note((spelling.operation, self._at, event, tag, op.number))
        for each in self.listeners:
            each.ended(self.now, op, event)
