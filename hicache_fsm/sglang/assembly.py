"""The parts of the plugin put together: which method of the engine each of them hears of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from .guard import Guard, Touch
from .hooks import PIPELINE, RETRIES, TREE, Hooks
from .keeper import Keeper
from .modes import InvariantViolation, Mode, Options
from .recorder import Recorder
from .sink import Sink

LOGGER = logging.getLogger(__name__)


class Plugin:
    """One engine's recorder and keeper behind one guard; the scheduler has it as ``hicache_fsm``."""

    def __init__(self, options: Options, version: str, sinks: Sequence[Sink] = ()) -> None:
        self.options = options
        self.guard = Guard()
        self.keeper = Keeper(options, sinks)
        # a violation that is raised tells the history of its attempt
        self.recorder = Recorder(options.log, self.keeper, sinks, remembers=options.mode is Mode.STRICT)
        self._version = version
        self._sinks = tuple(sinks)
        self._hooks = Hooks(self.recorder, self.keeper, version, self)

    def around(self) -> dict[str, Callable[..., Any]]:
        """AROUND hooks by the full path of their target, at most one a target."""
        touches, filters = self._touches(), self._hooks.filters()
        generators = {
            target: self.guard.around(hook, touches.get(target), filters.get(target))
            for target, hook in self._hooks.targets().items()
        }
        pairs = {
            target: self.guard.pair(before, after, touches.get(target))
            for target, (before, after) in self._hooks.pairs().items()
        }
        return generators | pairs

    def before(self) -> dict[str, Callable[..., None]]:
        """BEFORE hooks by the full path of their target: methods that change who owns what, and no more."""
        observed = {**self._hooks.targets(), **self._hooks.pairs()}
        return {
            target: self.guard.before(touch, target.rsplit(".", 1)[1])
            for target, touch in self._touches().items()
            if target not in observed
        }

    def _touches(self) -> dict[str, Touch]:
        """What notes the key of each method that changes who owns what, for the installed version."""
        keeper = self.keeper
        touches: dict[str, Touch] = {
            f"{TREE}.prefetch_from_storage": keeper.touch_key,
            f"{TREE}.release_aborted_request": keeper.touch_leaving,
            f"{TREE}.revoke_pending_prefetch": keeper.touch_key,
            f"{TREE}.pop_prefetch_loaded_tokens": keeper.touch_credit,
            f"{TREE}._handle_prefetch_result": keeper.touch_operation,
            f"{PIPELINE}.try_lock_anchor": keeper.touch_key,
            f"{PIPELINE}.release_anchor_lock": keeper.touch_key,
            f"{PIPELINE}.release_staged_hold": keeper.touch_key,
            f"{PIPELINE}.init_load_back": keeper.touch_load,
            f"{PIPELINE}.try_finish_load_back": keeper.touch_fill,
        }
        if self._version == "0.5.19":
            return touches | {f"{TREE}.pop_storage_prefetch_miss": keeper.touch_key}
        return touches | {
            f"{TREE}.pop_prefetch_loaded_span": keeper.touch_credit,
            f"{TREE}.finish_storage_prefetch_admission": keeper.touch_key,
            f"{RETRIES}.poll_miss": keeper.touch_key,
            f"{RETRIES}.refetch": keeper.touch_key,
            f"{RETRIES}.cancel": keeper.touch_marker,
        }

    def report(self) -> dict[str, object]:
        """Findings by invariant, repairs by kind, what is left (lines), audits, changes that no hook saw."""
        keeper = self.keeper
        return {
            "mode": str(self.options.mode),
            "audits": keeper.audits,
            "findings": dict(keeper.findings),
            "repairs": {str(kind): count for kind, count in keeper.repairs.items()},
            "left": keeper.leftovers(),
            "unseen_changes": 0 if keeper.ledger is None else keeper.ledger.resyncs,
            "off": self.guard.failed,
        }

    def summary(self) -> str:
        """One line: audits, findings and repairs so far."""
        keeper = self.keeper
        found = ", ".join(f"{name} {count}" for name, count in sorted(keeper.findings.items())) or "none"
        mended = ", ".join(f"{kind} {count}" for kind, count in sorted(keeper.repairs.items())) or "none"
        return f"mode {self.options.mode}: {keeper.audits} audits, findings: {found}, repairs: {mended}"

    def audit(self, why: str = "demand") -> None:
        """A full audit now, on the scheduler's thread. Raises ``InvariantViolation`` in strict mode."""
        if self.keeper.ledger is not None and not self.guard.failed:
            self.keeper.audit(why, self.recorder.unseen)

    def close(self) -> None:
        """The last audit, the log's trailer, the sinks' end; once, and never an exception.

        Without the audit where the engine stopped in the middle of a pass, or by strict mode.
        """
        if self.recorder.closed:
            return
        try:
            if not self.keeper.raised and not self.keeper.in_pass:
                self.audit("close")
        except InvariantViolation as violation:
            LOGGER.error("hicache-fsm at the end: %s", violation)
        except Exception:
            self.guard.fail("close")
        self.recorder.close(finished=not self.guard.failed)
        for sink in self._sinks:
            sink.close()
