"""The recorder: turns what SGLang does into events of the machines, and tells whoever listens.

It takes no decision, runs no collective and asks nothing of another rank.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hicache_fsm.runtime.log import EventLog

from .sink import Sink
from .view import EngineView, key_of, operation_key, rid_of

LOGGER = logging.getLogger(__name__)
HISTORY = 24
"""Newest events kept of each attempt, and of the ``PAST`` attempts that ended last."""
PAST = 512
ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
"""As ``EventLog.members`` encodes; made once, as an encoder costs more than a line."""
Told = tuple[int, str, object]
"""The pass, the event and its reason."""


@dataclass(slots=True)
class Attempt:
    """One stay of a request in the queue, and its run after it."""

    number: int
    request: Any
    queued: bool = True
    running: bool = False
    spent_out: bool = False
    """It was told that its budget is spent; upstream may find that out again on each pass."""
    history: deque[Told] = field(default_factory=lambda: deque(maxlen=HISTORY))


@dataclass(slots=True)
class Operation:
    """A question and the read it turns into, numbered in order of issue."""

    number: int
    rid: str
    attempt: int
    orphan: bool = False


class Recorder:
    """State of one recording. All methods belong to the scheduler's thread.

    ``path`` None writes no log: then sinks hear, and each attempt keeps its history. The log is written every
    ``every`` passes.
    """

    def __init__(self, path: Path | None, sinks: Sequence[Sink] = (), every: int = 1) -> None:
        self._path = path
        self._every = every
        self._sinks = tuple(sinks)
        self._log: EventLog | None = None
        self._view: EngineView | None = None
        self._attempts: dict[str, Attempt] = {}
        self._past: dict[str, deque[Told]] = {}
        self._operations: dict[int, Operation] = {}
        self._issued = 0
        self.closed = False
        self.now = 0
        """Scheduling passes begun, as events name them."""

    # ---- the log

    @property
    def view(self) -> EngineView | None:
        """The engine, once there is one to record."""
        return self._view

    def attach(self, view: EngineView, version: str) -> None:
        """Start with an engine just built. A log that cannot be written costs the log and nothing else."""
        self._view = view
        header = view.header(version)
        if self._path is not None:
            path = self._path if view.ranks == 1 else self._path.with_suffix(f".rank{header['rank']}.jsonl")
            try:
                self._log = EventLog(path)
                self._log.members({"kind": "header", "schema": 1, **header})
                self._log.flush()
            except OSError as error:
                LOGGER.error("hicache-fsm writes no log, the engine runs on: %s", error)
        for sink in self._sinks:
            sink.engine(header)

    def close(self, *, finished: bool = True) -> None:
        """End the log, if one was begun, and with ``finished`` write its trailer."""
        self.closed = True
        log, self._log = self._log, None
        if log is None or self._view is None:
            return
        if finished:
            idle = bool(self._view.scheduler.is_fully_idle()) and not self._operations
            log.trailer(self.now, idle=idle, residue=self._view.residue())
        log.close()

    def begin_pass(self) -> None:
        """Count the pass; write what was told before, every so many passes: a crash costs at most that."""
        self.now += 1
        if self.now % self._every == 0:
            self.flush()

    def flush(self) -> None:
        """Write what was told up to now."""
        if self._log is not None:
            self._log.flush()

    def write(self, machine: str, event: str, **members: object) -> None:
        """One event; members that are None are left out."""
        if self._log is not None:
            self._log.note((_spell, self.now, machine, event, members))
        if self._sinks:
            kept = {name: value for name, value in members.items() if value is not None}
            rid = kept.get("rid")
            for sink in self._sinks:
                sink.transition(self.now, machine, event, None if rid is None else str(rid), kept)

    def prefetch(self, event: str, rid: str, **members: object) -> None:
        """One event of an attempt; the log gets what the engine shows right now with it."""
        attempt = self._attempts.get(rid)
        if attempt is None or self._view is None:
            return
        attempt.history.append((self.now, event, members.get("why")))
        if self._log is not None:
            members["seen"] = self._view.seen(attempt.request, attempt.queued)
        self.write("prefetch", event, rid=rid, attempt=attempt.number, **members)

    def history(self, rid: str) -> list[str]:
        """The newest events of a request that lives or ended not long ago, oldest first."""
        attempt = self._attempts.get(rid)
        told = self._past.get(rid, ()) if attempt is None else attempt.history
        return [f"pass {now}  {event}{f' ({why})' if why else ''}" for now, event, why in told]

    # ---- attempts and operations

    def begin_attempt(self, request: Any, number: int = 0) -> Attempt:
        """A request enters the queue for the ``number``th time, counted from 0."""
        attempt = self._attempts[request.rid] = Attempt(number, request)
        return attempt

    def retire(self, rid: str) -> None:
        """A request is over: let go of it, keep its history for a while."""
        attempt = self._attempts.pop(rid, None)
        if attempt is not None:
            self._past[rid] = attempt.history
            if len(self._past) > PAST:
                del self._past[next(iter(self._past))]

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


def _spell(seq: int, told: tuple[Any, ...]) -> str:
    _, now, machine, event, members = told
    body = {"seq": seq, "pass": now, "machine": machine, "event": event}
    for name, value in members.items():
        if value is not None:
            body[name] = value
    return ENCODE(body) + "\n"
