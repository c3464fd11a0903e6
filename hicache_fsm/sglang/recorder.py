"""The recorder: turns what SGLang does into events of the machines, and writes them down.

It only observes. It takes no decision, runs no collective and asks nothing of another rank; a fault inside
it is reported once and switches it off, and the engine runs on.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_fsm.runtime.log import EventLog

from .view import EngineView, key_of, operation_key, rid_of

LOGGER = logging.getLogger(__name__)
Hook = Callable[..., Generator[None, Any, None]]
REMEMBERED = 65_536
"""Request ids whose attempt number outlives the request; older ones start from 0 again."""


@dataclass(slots=True)
class Attempt:
    """One stay of a request in the queue, and its run after it."""

    number: int
    request: Any
    queued: bool = True
    running: bool = False
    spent_out: bool = False
    """It was told that its budget is spent; upstream may find that out again on each pass."""


@dataclass(slots=True)
class Operation:
    """A question and the read it turns into, numbered in order of issue."""

    number: int
    rid: str
    attempt: int
    orphan: bool = False


class Recorder:
    """State of one recording. All methods belong to the scheduler's thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log: EventLog | None = None
        self._view: EngineView | None = None
        self._failed = False
        self._attempts: dict[str, Attempt] = {}
        self._ended: dict[str, int] = {}
        self._operations: dict[int, Operation] = {}
        self._issued = 0
        self.now = 0
        """Scheduling passes begun, as events name them."""

    # ---- being called by the engine

    def around(self, hook: Hook) -> Callable[..., Any]:
        """An AROUND hook from a generator: up to its ``yield`` before the call, the rest after it."""

        @functools.wraps(hook)
        def observed(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self._failed:
                return original(*args, **kwargs)
            observer: Generator[None, Any, None] | None = None
            try:
                observer = hook(*args, **kwargs)
                next(observer)
            except Exception:
                observer = None
                self._fail(hook)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if observer is not None:
                    observer.close()
                raise
            if observer is not None:
                self._finish(observer, result, hook)
            return result

        return observed

    def _finish(self, observer: Generator[None, Any, None], result: Any, hook: Hook) -> None:
        try:
            observer.send(result)
        except StopIteration:
            return
        except Exception:
            self._fail(hook)
            return
        observer.close()

    def _fail(self, hook: Hook) -> None:
        if not self._failed:
            self._failed = True
            LOGGER.exception(
                "hicache-fsm recorder is off after a fault in %s; the engine runs on", hook.__name__
            )

    # ---- the log

    @property
    def view(self) -> EngineView | None:
        """The engine, once there is one to record."""
        return self._view

    def attach(self, scheduler: Any, version: str) -> None:
        """Start a log for a scheduler just built; without HiCache storage nothing is recorded."""
        if not getattr(scheduler, "enable_hicache_storage", False):
            return
        view = EngineView(scheduler)
        header = view.header(version)
        path = self._path if header["ranks"] == 1 else self._path.with_suffix(f".rank{header['rank']}.jsonl")
        self._log = EventLog(path)
        self._log.members({"kind": "header", "schema": 1, **header})
        self._view = view

    def close(self) -> None:
        """Write the trailer, if a log was begun."""
        if self._log is None or self._view is None or self._failed:
            return
        idle = bool(self._view.scheduler.is_fully_idle()) and not self._operations
        self._log.trailer(self.now, idle=idle, residue=self._view.residue())
        self._log.close()
        self._log = None

    def write(self, machine: str, event: str, **members: object) -> None:
        """One line; members that are None are left out."""
        if self._log is not None:
            kept = {name: value for name, value in members.items() if value is not None}
            self._log.members({"pass": self.now, "machine": machine, "event": event, **kept})

    def prefetch(self, event: str, rid: str, **members: object) -> None:
        """One line about an attempt, with what the engine shows right now."""
        attempt = self._attempts.get(rid)
        if attempt is None or self._view is None:
            return
        members["seen"] = self._view.seen(attempt.request, attempt.queued)
        self.write("prefetch", event, rid=rid, attempt=attempt.number, **members)

    # ---- attempts and operations

    def begin_attempt(self, request: Any) -> Attempt:
        """A request enters the queue: its next attempt number, from 0."""
        before = self._attempts.get(request.rid)
        last = self._ended.pop(request.rid, -1) if before is None else before.number
        attempt = self._attempts[request.rid] = Attempt(last + 1, request)
        return attempt

    def retire(self, rid: str) -> None:
        """A request is over: keep its attempt number, let go of the request."""
        attempt = self._attempts.pop(rid, None)
        if attempt is not None:
            self._ended[rid] = attempt.number
            if len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def attempt(self, rid: str) -> Attempt | None:
        """The attempt of a request id that is queued or running, or None."""
        return self._attempts.get(rid)

    def queued(self) -> list[str]:
        """Ids of all attempts in the queue, oldest first."""
        return [rid for rid, attempt in self._attempts.items() if attempt.queued]

    def begin_operation(self, operation: Any) -> int:
        """Number a new operation."""
        self._issued += 1
        rid = rid_of(operation_key(operation))
        attempt = self._attempts.get(rid)
        self._operations[operation.id] = Operation(self._issued, rid, attempt.number if attempt else 0)
        return self._issued

    def number_of(self, operation: Any) -> int | None:
        """The number of an operation that has not ended, or None."""
        known = None if operation is None else self._operations.get(operation.id)
        return None if known is None else known.number

    def end_operation(self, operation: Any) -> int | None:
        """Forget an operation that has answered for the last time; its number."""
        known = None if operation is None else self._operations.pop(operation.id, None)
        return None if known is None else known.number

    def orphan(self, operation: Any) -> int | None:
        """Mark an operation as going on without its attempt; its number."""
        known = None if operation is None else self._operations.get(operation.id)
        if known is None:
            return None
        known.orphan = True
        return known.number

    def end_orphan(self, operation: Any) -> None:
        """An orphan has answered for the last time."""
        known = self._operations.pop(operation.id, None)
        if known is not None and known.orphan:
            self.write("operation", "end", rid=known.rid, attempt=known.attempt, op=known.number)

    def stale(self, operation: Any) -> None:
        """An orphan's answer was taken for the newer question of its request id."""
        known = self._operations.pop(operation.id, None)
        if known is not None:
            self.write("operation", "stale", rid=known.rid, attempt=known.attempt, op=known.number)

    def operation_of(self, request: Any) -> Any:
        """The live operation of a request in the engine, or None."""
        return None if self._view is None else self._view.live_operation(key_of(request))
