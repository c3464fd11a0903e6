"""Tells the event log and the monitor what happened, in the order in which it happened."""

from hicache_fsm.machine import CompiledMachine, Row
from hicache_fsm.runtime.attempt import Attempt, Operation, PinPlan
from hicache_fsm.runtime.guards import Moment
from hicache_fsm.runtime.ledger import Ledger
from hicache_fsm.runtime.log import EventLog, text
from hicache_fsm.runtime.monitor import Monitor

BOOL = ("false", "true")


class Journal:
    """Either listener may be missing.  `now` is the scheduling pass, from 0."""

    __slots__ = ("_heads", "_ledger", "_page_size", "_parked", "_pending", "log", "monitor", "now")

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
        self.now = 0
        self._heads = tuple(f'"machine":"prefetch","event":"{event}",' for event in table.events)
        self._parked = table.state_ids["parked"]
        self._pending = table.state_ids["pending"]

    def stepped(self, attempt: Attempt, event: int, moment: Moment, row: Row, op: Operation | None) -> None:
        """One prefetch transition; `op` is the operation that it was about, None if none was."""
        if self.log is not None:
            about = f',"op":{op.number}' if op is not None else ""
            if moment.why:
                about += f',"why":"{moment.why}"'
            if moment.tokens:
                about += f',"tokens":{moment.tokens}'
            if moment.wanted:
                about += f',"wanted_tokens":{moment.wanted}'
            head = f'"pass":{self.now},{self._heads[event]}{attempt.tag}'
            self.log.line(f"{head}{moment.facts}{about},{self.seen(attempt)}")
        if self.monitor is not None:
            number = op.number if op is not None else 0
            self.monitor.step(self.now, attempt.key, row.transition, number, moment.pages)

    def seen(self, attempt: Attempt) -> str:
        """What the books say of the attempt, and the engine's totals, as the log spells it."""
        armed = attempt.marker or attempt.state == self._pending
        occupied = self._ledger.occupied_pages * self._page_size
        return (
            f'"seen":{{"entry":{BOOL[attempt.op is not None]},"armed":{BOOL[armed]},'
            f'"hold":{BOOL[attempt.hold]},"spent":{attempt.spent},'
            f'"parked":{BOOL[attempt.state == self._parked]},'
            f'"pinned_tokens":{self._ledger.pinned_tokens},"occupied_tokens":{occupied}}}'
        )

    def queued(self, attempt: Attempt, again: str) -> None:
        """An attempt began."""
        if self.log is not None:
            more = f',"again":"{again}"' if again else ""
            self.log.line(
                f'"pass":{self.now},"machine":"prefetch","event":"enqueue",{attempt.tag},"tokens":{attempt.tokens}'
                f"{more},{self.seen(attempt)}"
            )
        if self.monitor is not None:
            self.monitor.begin(attempt.key, attempt.spent)

    def left(self, attempt: Attempt, event: str) -> None:
        """A running request left the batch: `retract` or `finish`."""
        if self.log is not None:
            self.log.line(
                f'"pass":{self.now},"machine":"prefetch","event":"{event}",{attempt.tag},{self.seen(attempt)}'
            )

    def illegal(self, machine: str, event: str, tag: str) -> None:
        """An event that its machine does not allow: observed, not followed."""
        if self.log is not None:
            self.log.line(f'"pass":{self.now},"machine":"{machine}","event":"{event}"{tag},"illegal":true')

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
            self.log.line(f'"pass":{self.now},"machine":"operation","event":"{event}",{tag},"op":{op.number}')

    def pinned(self, plan: PinPlan) -> None:
        """The answer to a pin."""
        attempt, anchor = plan.attempt, plan.anchor
        if self.log is not None:
            self.log.line(
                f'"pass":{self.now},"machine":"pin","event":"pin",{attempt.tag},'
                f'"facts":{{"anchored":{BOOL[plan.anchored]}}},"tokens":{anchor.tokens},"why":"{plan.why}",'
                f'"seen":{{"pinned_tokens":{self._ledger.pinned_tokens}}}'
            )
        if self.monitor is not None and "lock_anchor" in plan.row.transition.effects:
            self.monitor.pinned(self.now, attempt.key, anchor.tokens)

    def unpinned(self, attempt: Attempt, event: str, tokens: int) -> None:
        """A held pin was given back, by its holder (`unpin`) or for it (`lapse`)."""
        if self.log is not None:
            self.log.line(
                f'"pass":{self.now},"machine":"pin","event":"{event}",{attempt.tag},"tokens":{tokens},'
                f'"seen":{{"pinned_tokens":{self._ledger.pinned_tokens}}}'
            )
        if self.monitor is not None:
            self.monitor.unpinned(self.now, attempt.key, tokens)

    def node(self, event: str, node: object, tokens: int) -> None:
        """Something happened to a node."""
        if self.log is not None:
            self.log.line(
                f'"pass":{self.now},"machine":"node","event":"{event}","node":{text(str(node))},"tokens":{tokens}'
            )

    def believed(self, event: str, pool: str, pages: int, keep: int | None = None) -> None:
        """Something happened to beliefs about so many pages of a pool."""
        if self.log is not None:
            more = "" if keep is None else f',"keep_pages":{keep}'
            self.log.line(
                f'"pass":{self.now},"machine":"belief","event":"{event}","pool":{text(pool)},"pages":{pages}{more}'
            )
