"""The effects of prefetch transitions, each in two parts: what may fail, then what the ledger remembers."""

from collections import Counter
from collections.abc import Sequence

from hicache_fsm.runtime.attempt import Attempt
from hicache_fsm.runtime.decision import BulkEffect, Effect
from hicache_fsm.runtime.executor import Executor, NullExecutor, Undo
from hicache_fsm.runtime.guards import Moment
from hicache_fsm.runtime.journal import Journal
from hicache_fsm.runtime.ledger import Ledger
from hicache_fsm.runtime.pacing import Pacing
from hicache_fsm.runtime.pins import Pins
from hicache_fsm.spec import Constants


class Effects:
    """Finds the parts of an effect by its name.

    The first part asks the executor and may raise; it reads the ledger and changes nothing in it. The second
    part enters the change into the ledger and cannot fail. All first parts of a row run before any second
    one. What a sweep does to many attempts has a second part for all of them, in `bulk`, by all effects of its row.
    """

    def __init__(
        self,
        constants: Constants,
        ledger: Ledger,
        pins: Pins,
        pacing: Pacing,
        journal: Journal,
        executor: Executor,
        undo: Undo,
        misses: Counter[str],
    ) -> None:
        self._constants = constants
        self._ledger = ledger
        self._pins = pins
        self._pacing = pacing
        self._journal = journal
        self._executor = executor
        self._undo = undo
        self._misses = misses
        self.first: dict[str, Effect] = {"pin_anchor": self._pin_anchor}
        if type(executor) is not NullExecutor:  # a subclass may do something
            self.first |= self._executed()
        self.second: dict[str, Effect] = {
            "ask": self._asked,
            "pin_anchor": self._pinned,
            "unpin": self._unpinned,
            "yield_pin": self._yielded_pin,
            "raise_marker": self._raise_marker,
            "raise_immediate": self._raise_immediate,
            "lower_marker": self._lower_marker,
            "start_wait": self._start_wait,
            "count_pass": self._count_pass,
            "spend": self._spend,
            "spend_unasked": self._spend_unasked,
            "take_pages": self._took_pages,
            "hold_answer": self._held_answer,
            "end_operation": self._ended_operation,
            "stage_hold": self._staged_hold,
            "free_pages": self._freed_pages,
            "orphan_operation": self._orphaned_operation,
            "cut_operation": self._was_cut,
            "consume_hold": self._dropped_hold,
            "release_hold": self._dropped_hold,
        }
        self.bulk: dict[tuple[str, ...], BulkEffect] = {
            ("lower_marker",): self._lower_markers,
            ("lower_marker", "start_wait"): self._start_waits,
        }

    def _executed(self) -> dict[str, Effect]:
        return {
            "ask": self._ask,
            "unpin": self._unpin,
            "yield_pin": self._yield_pin,
            "take_pages": self._take_pages,
            "end_operation": self._end_operation,
            "stage_hold": self._stage_hold,
            "free_pages": self._free_pages,
            "orphan_operation": self._orphan_operation,
            "cut_operation": self._cut_operation,
            "consume_hold": self._consume_hold,
            "release_hold": self._release_hold,
        }

    def _ask(self, attempt: Attempt, moment: Moment) -> None:
        self._executor.ask(attempt.key, self._ledger.last_op + 1, moment.tokens, self._undo)

    def _asked(self, attempt: Attempt, moment: Moment) -> None:
        attempt.op = self._ledger.new_operation(attempt)
        attempt.immediate = False

    def _pin_anchor(self, attempt: Attempt, moment: Moment) -> None:
        anchor = moment.anchor or attempt.anchor
        if anchor is not None and (self._constants.pins_early or not moment.asks):
            moment.pin = self._pins.plan(attempt, anchor, self._undo)

    def _pinned(self, attempt: Attempt, moment: Moment) -> None:
        if moment.anchor is not None:
            attempt.anchor = moment.anchor
        if moment.pin is not None:
            self._pins.commit(moment.pin)
            self._journal.pinned(moment.pin)
        elif attempt.anchor is not None:
            self._pins.hang(attempt, attempt.anchor)

    def _unpin(self, attempt: Attempt, moment: Moment) -> None:
        self._pins.unlock(attempt)

    def _unpinned(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.pin is not None and (tokens := self._pins.commit_unpin(attempt)) is not None:
            self._journal.unpinned(attempt, "unpin", tokens)

    def _yield_pin(self, attempt: Attempt, moment: Moment) -> None:
        self._pins.unlock_for_now(attempt)

    def _yielded_pin(self, attempt: Attempt, moment: Moment) -> None:
        if (tokens := self._pins.commit_yield(attempt)) is not None:
            self._journal.unpinned(attempt, "unpin", tokens)

    def _raise_marker(self, attempt: Attempt, moment: Moment) -> None:
        attempt.marker = True
        attempt.immediate = False
        attempt.reason = reason = moment.why or attempt.reason
        self._misses[reason] += 1
        self._pacing.raised(attempt)

    def _raise_immediate(self, attempt: Attempt, moment: Moment) -> None:
        self._raise_marker(attempt, moment)
        attempt.immediate = self._constants.immediate_known_hit

    def _lower_marker(self, attempt: Attempt, moment: Moment) -> None:
        attempt.marker = False

    def _start_wait(self, attempt: Attempt, moment: Moment) -> None:
        attempt.swept = moment.now
        self._pacing.wait(attempt, moment.now)

    def _lower_markers(self, attempts: Sequence[Attempt], moment: Moment) -> None:
        for attempt in attempts:
            attempt.marker = False

    def _start_waits(self, attempts: Sequence[Attempt], moment: Moment) -> None:
        now = moment.now
        for attempt in attempts:
            attempt.marker = False
            attempt.swept = now
        self._pacing.wait_all(attempts, now)

    def _count_pass(self, attempt: Attempt, moment: Moment) -> None:
        """The wheel has counted it."""

    def _spend(self, attempt: Attempt, moment: Moment) -> None:
        attempt.spent += 1

    def _spend_unasked(self, attempt: Attempt, moment: Moment) -> None:
        attempt.spent += self._constants.spends_unasked

    def _take_pages(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._executor.take_pages(attempt.key, attempt.op.number, moment.pages, self._undo)

    def _took_pages(self, attempt: Attempt, moment: Moment) -> None:
        attempt.partial = moment.tokens < moment.wanted
        if attempt.op is not None:
            self._ledger.take(attempt.op, moment.pages)

    def _held_answer(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._ledger.park(attempt.op)

    def _end_operation(self, attempt: Attempt, moment: Moment) -> None:
        if moment.answered is not None:
            self._orphan_operation(attempt, moment)
        elif attempt.op is not None:
            self._executor.end_operation(attempt.key, attempt.op.number)

    def _ended_operation(self, attempt: Attempt, moment: Moment) -> None:
        if moment.answered is not None:
            self._orphaned_operation(attempt, moment)
        elif attempt.op is not None:
            self._ledger.end(attempt.op)
            attempt.op = None

    def _stage_hold(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._executor.stage_hold(attempt.key, attempt.op.number, moment.pages)

    def _staged_hold(self, attempt: Attempt, moment: Moment) -> None:
        self._to_hold(attempt, moment.pages)
        if attempt.op is not None:
            self._ledger.free(attempt.op)
            attempt.op = None

    def _free_pages(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._executor.free_pages(attempt.key, attempt.op.number)

    def _freed_pages(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._ledger.free(attempt.op)
            attempt.op = None

    def _orphan_operation(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._executor.orphan_operation(attempt.key, attempt.op.number)

    def _orphaned_operation(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._ledger.terminate(attempt.op)
            attempt.op = None

    def _cut_operation(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.op is not None:
            self._executor.cut_operation(attempt.key, attempt.op.number, moment.pages)

    def _was_cut(self, attempt: Attempt, moment: Moment) -> None:
        self._to_hold(attempt, moment.pages)
        self._orphaned_operation(attempt, moment)

    def _to_hold(self, attempt: Attempt, pages: int) -> None:
        if attempt.op is not None:
            attempt.op.pages -= pages
            attempt.hold = attempt.hold or pages > 0
            attempt.hold_pages += pages

    def _consume_hold(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.hold:
            self._executor.consume_hold(attempt.key, attempt.hold_pages)

    def _release_hold(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.hold:
            self._executor.release_hold(attempt.key, attempt.hold_pages)

    def _dropped_hold(self, attempt: Attempt, moment: Moment) -> None:
        if attempt.hold:
            self._ledger.occupied_pages -= attempt.hold_pages
            attempt.hold = False
            attempt.hold_pages = 0
