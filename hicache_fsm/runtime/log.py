"""Writes the event log (docs/event-log.md, schema 1), one line per event."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from hicache_fsm.runtime.settings import LOGGER, Settings
from hicache_fsm.runtime.spelling import Record, plain

SCHEMA: Final = 1
PENDING: Final = 1024
"""How many lines are kept back at most where lines are buffered."""


class Log(Protocol):
    """What a lifecycle tells its log."""

    def header(self, settings: Settings) -> None:
        """The lifecycle begins, with these settings."""

    def note(self, record: Record, /) -> object:
        """Something happened."""

    def flush(self) -> None:
        """A pass is over."""

    def alarm(self) -> None:
        """An event was illegal, or an invariant is broken."""

    def trailer(self, now: int, *, idle: bool, residue: Mapping[str, int]) -> None:
        """The lifecycle tells nothing more: the pass, whether nothing was queued or running, and what was owned."""

    def close(self) -> None:
        """Nothing comes any more."""


class EventLog:
    """An event log being written.

    Lines are spelled and written by `flush`, which a lifecycle calls at the end of each pass, at an illegal event
    and at a violation: a crash of the process costs at most the lines since then, and so does an end without
    `close`. Unbuffered, each line is one write, and the crash costs at most the line it was in. With `sync` each
    write is also flushed to the disk, which a crash of the machine would need; lines are then unbuffered. What
    cannot be written is reported once through `logging`, `broken` is set, and the log stays silent from there
    on: it must not stop an engine.
    """

    __slots__ = ("_engine", "_file", "_pending", "_sync", "_written", "broken", "note", "path")

    def __init__(
        self,
        path: Path,
        *,
        buffered: bool = True,
        sync: bool = False,
        version: str = "",
        threshold_tokens: int = 1,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """Create or replace the file. Raises OSError if that is impossible.

        The header tells the engine's `version`, the shortest span that it asks about, and which of how many
        ranks it is.
        """
        self.path = path
        self.broken = False
        self._sync = sync
        self._written = 0
        self._pending: list[Record] = []
        self.note: Callable[[Record], None] = self._keep if buffered and not sync else self._spell
        """Takes a record, to be spelled when it is written."""
        self._engine: dict[str, object] = {
            "version": version,
            "threshold_tokens": threshold_tokens,
            "rank": rank,
            "ranks": ranks,
        }
        self._file = path.open("wb", buffering=0)

    def header(self, settings: Settings, *, tail: bool = False) -> None:
        """Write the first line; `tail` says that events before the next line are missing."""
        constants = settings.constants
        self.members(
            {
                "kind": "header",
                "schema": SCHEMA,
                "source": "runtime",
                "profile": settings.profile,
                "constants": {
                    "interval": constants.interval,
                    "max_attempts": constants.max_attempts,
                    "dense": constants.dense,
                },
                "mode": settings.mode,
                "page_size": settings.page_size,
                "pool_tokens": settings.pool_tokens,
                "pin_cap_tokens": settings.pin_cap,
                "host_tokens": settings.host_tokens,
                **self._engine,
                **({"tail": True} if tail else {}),
            }
        )
        self.flush()

    def members(self, body: Mapping[str, object]) -> None:
        """Write a line from its members, `seq` excepted."""
        self.line(json.dumps(body, separators=(",", ":"))[1:-1])

    def line(self, body: str) -> None:
        """Write a line from its members as JSON text without the braces, `seq` excepted."""
        self.note((plain, body))

    def flush(self) -> None:
        """Spell and write what is pending."""
        pending = self._pending
        if pending:
            self._pending = []
            lines = [record[0](seq, record) for seq, record in enumerate(pending, self._written)]
            self._write("".join(lines), len(lines))

    alarm = flush

    def trailer(self, now: int, *, idle: bool, residue: Mapping[str, int]) -> None:
        """Write the last line: the pass, whether nothing was queued or running, and what was still owned."""
        self.members({"kind": "trailer", "pass": now, "idle": idle, "residue": dict(residue)})

    def close(self) -> None:
        """Close the file; `trailer` first, or readers will report a missing end."""
        self.flush()
        try:
            self._file.close()
        except OSError as error:
            self._break(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _keep(self, record: Record) -> None:
        pending = self._pending
        pending.append(record)
        if len(pending) >= PENDING:
            self.flush()

    def _spell(self, record: Record) -> None:
        self._write(record[0](self._written, record), 1)

    def _write(self, text: str, lines: int) -> None:
        if self.broken:
            return
        data = text.encode()
        try:
            written = self._file.write(data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes written")
            if self._sync:
                os.fsync(self._file.fileno())
        except (OSError, ValueError) as error:
            self._break(error)
            return
        self._written += lines

    def _break(self, error: Exception) -> None:
        if not self.broken:
            LOGGER.error("event log %s ends by line %d: %s", self.path, self._written, error)
        self.broken = True
