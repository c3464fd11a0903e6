"""What a lifecycle knows, to read."""

from collections import Counter

from hicache_fsm.machine import CompiledMachine
from hicache_fsm.runtime.answers import Answers
from hicache_fsm.runtime.attempt import AttemptKey
from hicache_fsm.runtime.core import Core
from hicache_fsm.runtime.errors import Past
from hicache_fsm.runtime.settings import Settings


class Known:
    """The read-only side of a lifecycle: look-ups, `orphans` excepted."""

    settings: Settings
    _core: Core
    _answers: Answers

    @property
    def now(self) -> int:
        """The scheduling pass, from 0."""
        return self._core.journal.now

    @property
    def waiting(self) -> int:
        """Attempts in the queue."""
        return len(self._core.queue)

    @property
    def idle(self) -> bool:
        """Nothing queued, running or posted, and no operation that still answers."""
        core = self._core
        return not (core.queue or core.running or core.ledger.operations or len(self._answers))

    @property
    def pinned_tokens(self) -> int:
        """Tokens that all holders pin together."""
        return self._core.ledger.pinned_tokens

    @property
    def occupied_tokens(self) -> int:
        """Tokens of host pages that operations, orphans included, and holds own."""
        return self._core.ledger.occupied_pages * self.settings.page_size

    @property
    def orphans(self) -> list[int]:
        """Operations that will still answer although no attempt wants them, in order of issue."""
        return [op.number for op in self._core.ledger.operations.values() if op.attempt.op is not op]

    @property
    def illegal(self) -> Counter[tuple[str, str, str]]:
        """Refused events by (machine, event, state)."""
        return self._core.illegal

    @property
    def misses(self) -> Counter[str]:
        """Markers raised, by reason."""
        return self._core.misses

    @property
    def table(self) -> CompiledMachine:
        """The prefetch machine."""
        return self._core.table

    def states(self) -> Counter[str]:
        """How many waiting attempts are in each state.  Costs what is queued."""
        names = self._core.table.states
        return Counter(names[attempt.state] for attempt in self._core.queue.values())

    def state(self, key: AttemptKey) -> str | None:
        """The attempt's state; None if it is unknown or long gone."""
        attempt = self._core.find(key)
        return None if attempt is None else self._core.table.states[attempt.state]

    def operation(self, key: AttemptKey) -> int | None:
        """The number of the attempt's live operation."""
        attempt = self._core.find(key)
        return attempt.op.number if attempt is not None and attempt.op is not None else None

    def reason(self, key: AttemptKey) -> str:
        """Why the attempt missed last, empty if it never did."""
        attempt = self._core.find(key)
        return attempt.reason if attempt is not None else ""

    def spent(self, key: AttemptKey) -> int:
        """Re-issues charged to the attempt's budget."""
        attempt = self._core.find(key)
        return attempt.spent if attempt is not None else 0

    def history(self, key: AttemptKey) -> tuple[Past, ...]:
        """The attempt's newest steps, oldest first."""
        attempt = self._core.find(key)
        return self._core.history(attempt) if attempt is not None else ()
