"""Takes one event to one attempt: decides by the compiled table, runs the effects, books the result."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Final

from hicache_fsm.machine import CompiledMachine, Fork, Row, grow
from hicache_fsm.runtime.attempt import HISTORY, Attempt, AttemptKey, Operation
from hicache_fsm.runtime.decision import Way
from hicache_fsm.runtime.effects import Effects
from hicache_fsm.runtime.errors import IllegalTransition, Past
from hicache_fsm.runtime.executor import Executor, Rollback
from hicache_fsm.runtime.guards import Guard, Moment, Swept, prefetch_guards
from hicache_fsm.runtime.journal import Journal
from hicache_fsm.runtime.ledger import Ledger
from hicache_fsm.runtime.log import Log
from hicache_fsm.runtime.monitor import Monitor
from hicache_fsm.runtime.nodes import Nodes
from hicache_fsm.runtime.pacing import Pacing
from hicache_fsm.runtime.pins import Pins
from hicache_fsm.runtime.settings import LOGGER, Settings
from hicache_fsm.spec import Spec

MOST: Final = 2 * HISTORY

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
        log: Log | None,
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
        effects = Effects(
            constants,
            self.ledger,
            self.pins,
            self.pacing,
            self.journal,
            executor,
            self.rollback.undo,
            self.misses,
        )
        self._guards = self.table.bind(prefetch_guards(settings))
        cells = [(s, e) for s in range(len(self.table.states)) for e in range(len(self.table.events))]
        self._ways = {
            id(row): self._way(*cell, row, effects) for cell in cells for row in self.table.rows(*cell)
        }
        self._cells = tuple(self._tree(*cell) for cell in cells)
        self._width = len(self.table.events)
        self._scheduled = self.table.state_ids["scheduled"]
        self.told = self.journal.heard

    def find(self, key: AttemptKey) -> Attempt | None:
        """The attempt, waiting, running or lately ended."""
        return self.queue.get(key) or self.running.get(key) or self._ended.get(key)

    def begin(self, attempt: Attempt, again: str) -> None:
        """Queue a new attempt; `again` says why its id is queued once more."""
        self.queue[attempt.key] = attempt
        self.newest[attempt.key.rid] = attempt
        self.journal.queued(attempt, again)

    def step(self, attempt: Attempt, event: int, moment: Moment, decided: Way | None = None) -> bool:
        """Take the event, by the way that is decided if one is. False if it was illegal, and only counted.

        Raises IllegalTransition in strict mode, and whatever an effect raises: the state is then the old one,
        what was acquired is given back, and the event may come again.
        """
        found = decided or self._cells[attempt.state * self._width + event]
        while type(found) is Fork:
            holds = found.holds  # CPython calls a local faster than a slot
            found = found.yes if holds(attempt, moment) else found.no
        if found is None:
            self.refuse(attempt, event)
            return False
        way: Way = found  # type: ignore[assignment] # a Fork was excluded by the loop
        if way.first:
            try:
                for effect in way.first:
                    effect(attempt, moment)
            except BaseException:
                self.rollback.roll_back()
                raise
            if self.rollback.ways:
                self.rollback.commit()
        op = attempt.op
        for effect in way.second:
            effect(attempt, moment)
        if way.moves:
            # An event that changes no state, as a hold's loss, leaves the offer to ask again standing.
            attempt.offered = -1
            attempt.state = way.dest
        history = attempt.history
        history.append((moment.now, way))
        if len(history) > MOST:
            del history[:HISTORY]
        if self.told:
            self.journal.stepped(attempt, moment, way, attempt.op or op)
        if way.ends:
            self._leave(attempt)
        return True

    def take_all(self, attempts: Sequence[Attempt], moment: Moment, way: Way) -> None:
        """Take one transition for each of many attempts; raises as `step`, for those before the failing one."""
        if way.bulk is None or self.told:
            for attempt in attempts:
                self.step(attempt, way.event, moment, way)
            return
        way.bulk(attempts, moment)
        dest, past = way.dest, (moment.now, way)
        for attempt in attempts:
            attempt.state = dest
            attempt.history.append(past)  # `step` shortens it, and comes before the next of these

    def guards(self, state: int, event: int) -> list[tuple[int, Guard | bool]]:
        """The guards that decide the event in the state, as (bit of the truth mask, how to ask)."""
        reads = self.table.reads(state, event)
        return [(1 << number, holds) for number, holds in enumerate(self._guards) if reads & 1 << number]

    def way(self, row: Row | None) -> Way | None:
        """A row of the table, ready to be taken; None for none."""
        return None if row is None else self._ways[id(row)]

    def end_orphan(self, op: Operation, *, stale: bool = False) -> None:
        """An operation without an attempt has answered for the last time.  Raises as `step`.

        `stale` if its answer was taken for a newer question's.
        """
        table = self.ledger.table
        row = table.decide(op.state, table.event_ids["end"])
        freed = row is not None and "free_orphan_pages" in row.transition.effects
        if freed:
            self.executor.free_orphan_pages(op.number)
        if freed:
            self.ledger.free(op)
        else:
            self.ledger.end(op)
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
        return tuple(Past(now, names[way.event], states[way.dest]) for now, way in attempt.history)

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over for good."""
        if self.newest.get(attempt.key.rid) is attempt:
            del self.newest[attempt.key.rid]
        self._ended[attempt.key] = attempt
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def _tree(self, state: int, event: int) -> Fork[Guard, Way | None] | Way | None:
        guards = [
            (bit, holds.holds if isinstance(holds, Swept) else holds)
            for bit, holds in self.guards(state, event)
        ]
        return grow(guards, lambda truth: self.way(self.table.decide(state, event, truth)))

    def _way(self, state: int, event: int, row: Row, effects: Effects) -> Way:
        names = row.transition.effects
        first = tuple(effects.first[name] for name in names if name in effects.first)
        moves, ends = row.dest != state, row.dest in self.table.terminal
        return Way(
            row,
            event,
            first,
            tuple(effects.second[name] for name in names if name in effects.second),
            effects.bulk.get(names) if moves and not ends and not first else None,
            row.dest,
            moves=moves,
            ends=ends,
            text=f'"machine":"prefetch","event":"{self.table.events[event]}",',
        )

    def _leave(self, attempt: Attempt) -> None:
        del self.queue[attempt.key]
        if attempt.residue:
            self.leaks[attempt.key] = attempt
        if attempt.state == self._scheduled:
            self.running[attempt.key] = attempt
        else:
            self.forget(attempt)
