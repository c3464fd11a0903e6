"""Takes one event to one attempt: decides by the compiled table, runs the effects, books the result."""

from collections import Counter, OrderedDict
from typing import Final

from hicache_fsm.machine import CompiledMachine, Row
from hicache_fsm.runtime.attempt import HISTORY, Attempt, AttemptKey, Operation
from hicache_fsm.runtime.effects import Effects, bind
from hicache_fsm.runtime.errors import IllegalTransition, Past
from hicache_fsm.runtime.executor import Executor, Rollback
from hicache_fsm.runtime.guards import Moment, prefetch_guards
from hicache_fsm.runtime.journal import Journal
from hicache_fsm.runtime.ledger import Ledger
from hicache_fsm.runtime.log import EventLog
from hicache_fsm.runtime.monitor import Monitor
from hicache_fsm.runtime.nodes import Nodes
from hicache_fsm.runtime.pacing import Pacing
from hicache_fsm.runtime.pins import Pins
from hicache_fsm.runtime.settings import LOGGER, Settings
from hicache_fsm.spec import Spec

REMEMBERED: Final = 256
"""How many ended attempts are remembered, so that an event that comes too late can be explained."""


class Core:
    """Everything that is known of live attempts, and the one way to change it.

    `queue` has the waiting attempts in enqueue order, `running` the admitted ones, `leaks` ended attempts
    that still own something; `illegal` counts refused events by (machine, event, state), `misses` raised
    markers by reason.
    """

    def __init__(
        self,
        spec: Spec,
        settings: Settings,
        executor: Executor,
        log: EventLog | None,
        monitor: Monitor | None,
    ) -> None:
        constants = settings.constants
        self.settings = settings
        self.executor = executor
        self.table = CompiledMachine(spec.machines["prefetch"])
        self.rollback = Rollback()
        self.ledger = Ledger(spec.machines["operation"])
        self.journal = Journal(self.table, self.ledger, settings.page_size, log, monitor)
        self.nodes = Nodes(spec.machines["node"], self.journal, executor, self.rollback)
        self.pins = Pins(spec.machines["pin"], settings.pin_cap, self.ledger, self.nodes, executor)
        self.pacing = Pacing(constants.interval)
        self.queue: OrderedDict[AttemptKey, Attempt] = OrderedDict()
        self.running: dict[AttemptKey, Attempt] = {}
        self.leaks: dict[AttemptKey, Attempt] = {}
        self.newest: dict[str, Attempt] = {}
        self.illegal: Counter[tuple[str, str, str]] = Counter()
        self.misses: Counter[str] = Counter()
        self._ended: OrderedDict[AttemptKey, Attempt] = OrderedDict()
        self._decide = self.table.decide_lazy
        self.guards = self.table.bind(prefetch_guards(settings))
        effects = Effects(
            constants, self.ledger, self.pins, self.pacing, self.journal, executor, self.rollback.undo
        )
        self._first = bind(self.table, effects.first)
        self._second = bind(self.table, effects.second)
        self._scheduled = self.table.state_ids["scheduled"]
        self._terminal = self.table.terminal
        self._told = log is not None or monitor is not None

    def find(self, key: AttemptKey) -> Attempt | None:
        """The attempt, waiting, running or lately ended."""
        return self.queue.get(key) or self.running.get(key) or self._ended.get(key)

    def begin(self, attempt: Attempt, again: str) -> None:
        """Queue a new attempt; `again` says why its id is queued once more."""
        self.queue[attempt.key] = attempt
        self.newest[attempt.key.rid] = attempt
        self.journal.queued(attempt, again)

    def step(self, attempt: Attempt, event: int, moment: Moment) -> bool:
        """Take the event. False if it was illegal, and only counted.

        Raises IllegalTransition in strict mode, and whatever an effect raises: the state is then the old one,
        what was acquired is given back, and the event may come again.
        """
        row = self._decide(attempt.state, event, self.guards, attempt, moment)
        if row is None:
            self.refuse(attempt, event)
            return False
        self.take(attempt, event, moment, row)
        return True

    def take(self, attempt: Attempt, event: int, moment: Moment, row: Row) -> None:
        """Take a decided row.  Raises as `step`."""
        number = row.transition.row
        first = self._first[number]
        if first:
            try:
                for effect in first:
                    effect(attempt, moment)
            except BaseException:
                self.rollback.roll_back()
                raise
            self.rollback.commit()
        op = attempt.op
        marker = attempt.marker
        for effect in self._second[number]:
            effect(attempt, moment)
        dest = row.dest
        if dest != attempt.state:
            # An event that changes no state, as a hold's loss, leaves the offer to ask again standing.
            attempt.offered = -1
        attempt.state = dest
        history = attempt.history
        history.append((moment.now, event, dest))
        if len(history) > 2 * HISTORY:
            del history[:HISTORY]
        if attempt.marker and not marker:
            self.misses[attempt.reason] += 1
        if self._told:
            self.journal.stepped(attempt, event, moment, row, attempt.op or op)
        if dest in self._terminal:
            self._leave(attempt)

    def end_orphan(self, op: Operation, *, stale: bool = False) -> None:
        """An operation without an attempt has answered for the last time.  Raises as `step`.

        `stale` if its answer was taken for a newer question's.
        """
        table = self.ledger.table
        row = table.decide(op.state, table.event_ids["end"])
        freed = row is not None and "free_orphan_pages" in row.transition.effects
        if freed:
            self.executor.free_orphan_pages(op.number)
        pages = op.pages
        self.ledger.end(op)
        if freed:
            self.ledger.own(op, -pages)
        self.journal.orphan_ended(op, freed=freed, stale=stale)

    def refuse(self, attempt: Attempt, event: int) -> None:
        """Count an illegal event of the attempt.  Raises IllegalTransition in strict mode."""
        reason = self.table.explain_illegal(attempt.state, event)
        self.object(
            "prefetch", self.table.events[event], self.table.states[attempt.state], attempt.key, reason
        )

    def object(self, machine: str, event: str, state: str, subject: AttemptKey | str, reason: str) -> None:
        """Count, log and tell an illegal event.  Raises IllegalTransition in strict mode."""
        attempt = self.find(subject) if isinstance(subject, AttemptKey) else None
        self.illegal[machine, event, state] += 1
        self.journal.illegal(machine, event, f",{attempt.tag}" if attempt is not None else "")
        history = self.history(attempt) if attempt is not None else ()
        if self.settings.on_illegal == "strict":
            raise IllegalTransition(machine, event, state, str(subject), reason, history)
        if self.illegal[machine, event, state] == 1:
            LOGGER.warning("%s: %s (told once, counted from here on)", subject, reason)

    def history(self, attempt: Attempt) -> tuple[Past, ...]:
        """The attempt's newest steps, oldest first."""
        names, states = self.table.events, self.table.states
        return tuple(Past(now, names[event], states[state]) for now, event, state in attempt.history)

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over for good."""
        if self.newest.get(attempt.key.rid) is attempt:
            del self.newest[attempt.key.rid]
        self._ended[attempt.key] = attempt
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def _leave(self, attempt: Attempt) -> None:
        del self.queue[attempt.key]
        if attempt.residue:
            self.leaks[attempt.key] = attempt
        if attempt.state == self._scheduled:
            self.running[attempt.key] = attempt
        else:
            self.forget(attempt)
