"""Tells the event log, the monitor and other listeners what happened, in the order in which it happened."""

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.runtime.attempt import Attempt, Node, Operation, PinPlan
from hicache_fsm.runtime.decision import Way
from hicache_fsm.runtime.guards import Moment
from hicache_fsm.runtime.ledger import Ledger
from hicache_fsm.runtime.listener import Listener
from hicache_fsm.runtime.log import EventLog, text
from hicache_fsm.runtime.monitor import Monitor

BOOL = ("false", "true")


class Journal:
    """Any listener may be missing.  `now` is the scheduling pass, from 0."""

    __slots__ = (
        "_ledger",
        "_page_size",
        "_parked",
        "_pass",
        "_pending",
        "listeners",
        "log",
        "monitor",
        "now",
    )

    def __init__(
        self,
        table: CompiledMachine,
        ledger: Ledger,
        page_size: int,
        log: EventLog | None,
        monitor: Monitor | None,
    ) -> None:
        self._ledger = ledger
        self._page_size = page_size
        self.log = log
        self.monitor = monitor
        self.listeners: tuple[Listener, ...] = ()
        self._parked = table.state_ids["parked"]
        self._pending = table.state_ids["pending"]
        if monitor is not None and log is not None:
            monitor.alarm = log.flush
        self.begin(0)

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self.log is not None or self.monitor is not None or self.listeners)

    def begin(self, now: int) -> None:
        """Pass `now` begins."""
        self.now = now
        self._pass = f'"pass":{now},' if self.log is not None else ""

    def passed(self) -> None:
        """The pass has been swept: what is logged up to here is written."""
        if self.log is not None:
            self.log.flush()
        for each in self.listeners:
            each.passed(self.now)

    def stepped(self, attempt: Attempt, moment: Moment, way: Way, op: Operation | None) -> None:
        """One prefetch transition; `op` is the operation that it was about, None if none was."""
        log = self.log
        if log is not None:
            # As one text, for speed: this is nearly every line that is written.
            state, ledger = attempt.state, self._ledger
            why = f',"why":"{moment.why}"' if moment.why else ""
            tokens = f',"tokens":{moment.tokens}' if moment.tokens else ""
            if moment.wanted:
                tokens += f',"wanted_tokens":{moment.wanted}'
            log.whole(
                f'{{"seq":{log.seq},{self._pass}{way.text}{attempt.tag}{moment.facts}'
                f"{'' if op is None else op.text}{why}{tokens},"
                f'"seen":{{"entry":{"false" if attempt.op is None else "true"},'
                f'"armed":{"true" if attempt.marker or state == self._pending else "false"},'
                f'"hold":{"true" if attempt.hold else "false"},"spent":{attempt.spent},'
                f'"parked":{"true" if state == self._parked else "false"},'
                f'"pinned_tokens":{ledger.pinned_tokens},'
                f'"occupied_tokens":{ledger.occupied_pages * self._page_size}}}}}\n'
            )
        if self.monitor is not None:
            number = op.number if op is not None else 0
            self.monitor.step(self.now, attempt.key, way.row.transition, number, moment.pages)
        for each in self.listeners:
            each.stepped(self.now, attempt, moment, way.row, op)

    def seen(self, attempt: Attempt) -> str:
        """What the books say of the attempt, and the engine's totals, as the log spells it."""
        state, ledger = attempt.state, self._ledger
        entry = "false" if attempt.op is None else "true"
        armed = "true" if attempt.marker or state == self._pending else "false"
        hold = "true" if attempt.hold else "false"
        parked = "true" if state == self._parked else "false"
        return (
            f',"seen":{{"entry":{entry},"armed":{armed},"hold":{hold},"spent":{attempt.spent},"parked":{parked},'
            f'"pinned_tokens":{ledger.pinned_tokens},"occupied_tokens":{ledger.occupied_pages * self._page_size}}}'
        )

    def queued(self, attempt: Attempt, again: str) -> None:
        """An attempt began."""
        if self.log is not None:
            more = f',"again":"{again}"' if again else ""
            self.log.line(
                f'{self._pass}"machine":"prefetch","event":"enqueue",{attempt.tag},"tokens":{attempt.tokens}'
                f"{more}{self.seen(attempt)}"
            )
        if self.monitor is not None:
            self.monitor.begin(attempt.key, attempt.spent)
        for each in self.listeners:
            each.queued(self.now, attempt, again)

    def left(self, attempt: Attempt, event: str) -> None:
        """A running request left the batch: `retract` or `finish`."""
        if self.log is not None:
            self.log.line(
                f'{self._pass}"machine":"prefetch","event":"{event}",{attempt.tag}{self.seen(attempt)}'
            )
        for each in self.listeners:
            each.left(self.now, attempt, event)

    def illegal(self, machine: str, event: str, tag: str) -> None:
        """An event that its machine does not allow: observed, not followed."""
        if self.log is not None:
            self.log.line(f'{self._pass}"machine":"{machine}","event":"{event}"{tag},"illegal":true')
            self.log.flush()
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

    def _operation(self, event: str, op: Operation, victim: Attempt | None = None) -> None:
        if self.log is not None:
            tag = (victim or op.attempt).tag
            self.log.line(f'{self._pass}"machine":"operation","event":"{event}",{tag}{op.text}')
        for each in self.listeners:
            each.ended(self.now, op, event)

    def pinned(self, plan: PinPlan) -> None:
        """The answer to a pin."""
        attempt, anchor = plan.attempt, plan.anchor
        if self.log is not None:
            self.log.line(
                f'{self._pass}"machine":"pin","event":"pin",{attempt.tag},'
                f'"facts":{{"anchored":{BOOL[plan.anchored]}}},"tokens":{anchor.tokens},"why":"{plan.why}",'
                f'"seen":{{"pinned_tokens":{self._ledger.pinned_tokens}}}'
            )
        if self.monitor is not None and "lock_anchor" in plan.row.transition.effects:
            self.monitor.pinned(self.now, attempt.key, anchor.tokens)
        for each in self.listeners:
            each.pinned(self.now, plan)

    def unpinned(self, attempt: Attempt, event: str, tokens: int) -> None:
        """A held pin was given back, by its holder (`unpin`) or for it (`lapse`)."""
        if self.log is not None:
            self.log.line(
                f'{self._pass}"machine":"pin","event":"{event}",{attempt.tag},"tokens":{tokens},'
                f'"seen":{{"pinned_tokens":{self._ledger.pinned_tokens}}}'
            )
        if self.monitor is not None:
            self.monitor.unpinned(self.now, attempt.key, tokens)
        for each in self.listeners:
            each.unpinned(self.now, attempt, event, tokens)

    def node(self, event: str, node: Node, tokens: int) -> None:
        """Something happened to a node."""
        if self.log is not None:
            self.log.line(
                f'{self._pass}"machine":"node","event":"{event}","node":{text(str(node))},"tokens":{tokens}'
            )
        for each in self.listeners:
            each.node(self.now, event, node, tokens)

    def believed(self, event: str, pool: str, pages: int, lowered: int = 0, keep: int | None = None) -> None:
        """Something happened to beliefs about so many pages of a pool, `lowered` of which are no longer held."""
        if self.log is not None:
            more = "" if keep is None else f',"keep_pages":{keep}'
            self.log.line(
                f'{self._pass}"machine":"belief","event":"{event}","pool":{text(pool)},"pages":{pages}{more}'
            )
        for each in self.listeners:
            each.believed(self.now, event, pool, pages, lowered)
