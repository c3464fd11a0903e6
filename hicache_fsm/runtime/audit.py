"""The full check, every book recounted, and the repair of what ended attempts still own."""

from collections import Counter
from collections.abc import Iterator

from hicache_fsm.runtime.attempt import Attempt, AttemptKey
from hicache_fsm.runtime.core import Core
from hicache_fsm.runtime.monitor import Violation


def audit(core: Core) -> list[Violation]:
    """What is wrong now: ended attempts that still own something, and books that do not add up."""
    now = core.journal.now

    def broken(invariant: str, key: AttemptKey | None, message: str) -> Violation:
        return Violation(invariant, now, key, message)

    found = [broken(*what) for what in _leaks(core)]
    attempts = {**core.queue, **core.leaks}
    owned = sum(op.pages for op in core.ledger.operations.values())
    owned += sum(attempt.hold_pages for attempt in attempts.values())
    if owned != core.ledger.occupied_pages:
        message = f"{owned} host pages are owned, {core.ledger.occupied_pages} counted"
        found.append(broken("conservation", None, message))
    capacity = core.settings.host_pages
    if capacity is not None and owned > capacity:
        found.append(broken("conservation", None, f"{owned} host pages owned of {capacity}"))
    pinned = sum(
        attempt.pin.tokens for attempt in attempts.values() if attempt.pin is not None and attempt.pin.held
    )
    if pinned != core.ledger.pinned_tokens:
        message = f"live holders pin {pinned} tokens, {core.ledger.pinned_tokens} counted"
        found.append(broken("pin-owned", None, message))
    if core.ledger.pinned_tokens > core.pins.cap:
        message = f"{core.ledger.pinned_tokens} tokens pinned, cap {core.pins.cap}"
        found.append(broken("pin-cap", None, message))
    for key, attempt in core.queue.items():
        found += [broken(invariant, key, message) for invariant, message in _waiting(core, attempt)]
    return found


def _leaks(core: Core) -> Iterator[tuple[str, AttemptKey, str]]:
    for key, attempt in core.leaks.items():
        state = core.table.states[attempt.state]
        if attempt.residue:
            yield "no-residue", key, f"{state} and still owns something"
        if attempt.marker:
            yield "marker-owned", key, f"{state} with its marker up"
        if attempt.pin is not None and attempt.pin.held:
            yield "pin-owned", key, f"{state} with {attempt.pin.tokens} tokens pinned"


def _waiting(core: Core, attempt: Attempt) -> Iterator[tuple[str, str]]:
    constants = core.settings.constants
    state = core.table.states[attempt.state]
    if attempt.marker and state != "missed":
        yield "marker-once", f"in {state} with its marker up"
    if attempt.spent > constants.max_attempts:
        yield "attempts-bounded", f"{attempt.spent} re-issues spent of {constants.max_attempts}"
    if not constants.retries and (attempt.marker or state == "pending"):
        yield "disabled-inert", f"{state} although retries are off"
    if attempt.op is not None and core.ledger.operations.get(attempt.op.number) is not attempt.op:
        yield "one-in-flight", f"operation {attempt.op.number} is over but still registered"


def repair(core: Core) -> Counter[str]:
    """Take from ended attempts what they still own; their operations become orphans.

    Returns what was taken, by kind. Raises what an effect raises; what is left is then repaired next time.
    """
    taken: Counter[str] = Counter()
    for key, attempt in list(core.leaks.items()):
        if attempt.hold:
            core.executor.release_hold(key, attempt.hold_pages)
            core.ledger.occupied_pages -= attempt.hold_pages
            attempt.hold, attempt.hold_pages = False, 0
            taken["hold"] += 1
        if attempt.op is not None:
            core.executor.orphan_operation(key, attempt.op.number)
            core.ledger.terminate(attempt.op)
            attempt.op = None
            taken["operation"] += 1
        if (tokens := core.pins.lapse(attempt)) is not None:
            core.journal.unpinned(attempt, "lapse", tokens)
            taken["pin"] += 1
        if attempt.marker:
            attempt.marker = False
            taken["marker"] += 1
        del core.leaks[key]
    return taken
