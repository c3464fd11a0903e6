"""The parts of the plugin put together: which method of the engine each of them hears of."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

from .guard import Guard
from .hooks import Hooks
from .keeper import Keeper
from .lockstep import Lockstep
from .modes import InvariantViolation, Mode, Options
from .recorder import Recorder
from .sink import Sink
from .view import EngineView
from .watch import SCHEDULER, Watch

LOGGER = logging.getLogger(__name__)


class Plugin:
    """One engine's recorder and keeper behind one guard; the scheduler has it as ``hicache_fsm``."""

    def __init__(self, options: Options, version: str, sinks: Sequence[Sink] = ()) -> None:
        self.options = options
        self.lockstep: Lockstep | None = None
        """What compares this rank with others, if that is asked for."""
        self.guard = Guard()
        self.keeper = Keeper(options, sinks)
        self.recorder = Recorder(options.log, sinks, options.patience)
        self.watch = Watch(self.keeper, version)
        self._version = version
        self._sinks = tuple(sinks)
        # a violation that is raised tells the history of its attempt
        heard = options.log is not None or bool(sinks) or options.mode is Mode.STRICT
        self._hooks = Hooks(self.recorder, self.watch, version) if heard else None

    def around(self) -> dict[str, Callable[..., Any]]:
        """AROUND hooks by the full path of their target: one a target, what watches around what tells."""
        guard, hooks = self.guard, self._hooks
        tells: dict[str, Callable[..., Any]] = {}
        if hooks is not None:
            filters = hooks.filters()
            tells = {
                target: guard.around(hook, filters.get(target)) for target, hook in hooks.targets().items()
            }
            tells |= {target: guard.pair(*halves) for target, halves in hooks.pairs().items()}
        pairs = {f"{SCHEDULER}.__init__": (self._building, self._built), **self.watch.pairs()}
        watches = {target: guard.pair(*halves) for target, halves in pairs.items()}
        both = {target: nested(watches[target], tells[target]) for target in watches if target in tells}
        return tells | watches | both

    def before(self) -> list[tuple[str, Callable[..., None]]]:
        """BEFORE hooks, each with the full path of its target; of two on one target the last runs first."""
        told = {} if self._hooks is None else self._hooks.before()
        return [
            (target, self.guard.before(touch))
            for target, touch in (*self.watch.before().items(), *told.items())
        ]

    def _building(self, scheduler: Any, *_: Any, **__: Any) -> Any:
        return scheduler

    def _built(self, scheduler: Any, _result: Any) -> None:
        """The books start once the scheduler stands; without HiCache storage there are none."""
        scheduler.hicache_fsm = self
        if not getattr(scheduler, "enable_hicache_storage", False):
            return
        view = EngineView(scheduler)
        if self._hooks is not None:
            self.recorder.attach(view, self._version)
            self.keeper.history, self.keeper.lost = self.recorder.history, self.recorder.retire
        self.keeper.attach(view)

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
            self.keeper.audit(why)

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


def nested(outer: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    """One AROUND hook of two: SGLang warns of a target that has several."""

    @functools.wraps(outer)
    def both(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return outer(functools.partial(inner, original), *args, **kwargs)

    return both
