"""Writes the event log (docs/event-log.md, schema 1), one line per event."""

import json
import os
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hicache_fsm.runtime.settings import LOGGER, Settings

SCHEMA: Final = 1
BUFFER: Final = 1 << 18
"""Bytes that are kept back at most where lines are buffered."""


text = encode_basestring_ascii
"""A string as JSON."""


class EventLog:
    """An event log being written.

    Lines are buffered until `flush`, which a lifecycle calls at the end of each pass, at an illegal event and
    at a violation: a crash of the process costs at most the lines since then. Unbuffered, each line is one
    write, and the crash costs at most the line it was in. With `sync` each write is also flushed to the disk,
    which a crash of the machine would need; lines are then unbuffered. What cannot be written is reported
    once through `logging`, `broken` is set, and the log stays silent from there on: it must not stop an
    engine. `seq` is the number of the next line.
    """

    __slots__ = ("_engine", "_file", "_flushed", "_sync", "_write", "broken", "path", "seq")

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
        self.seq = self._flushed = 0
        self._engine: dict[str, object] = {
            "version": version,
            "threshold_tokens": threshold_tokens,
            "rank": rank,
            "ranks": ranks,
        }
        self._file = path.open("wb", buffering=BUFFER if buffered and not sync else 0)
        self._write = self._file.write

    def header(self, settings: Settings) -> None:
        """Write the first line."""
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
            }
        )
        self.flush()

    def members(self, body: Mapping[str, object]) -> None:
        """Write a line from its members, `seq` excepted."""
        self.line(json.dumps(body, separators=(",", ":"))[1:-1])

    def line(self, body: str) -> None:
        """Write a line from its members as JSON text without the braces, `seq` excepted."""
        self.whole(f'{{"seq":{self.seq},{body}}}\n')

    def whole(self, line: str) -> None:
        """Write a whole line, numbered `seq` and ended by a newline: the fast way."""
        if self.broken:
            return
        data = line.encode()
        try:
            written = self._write(data)
            if written != len(data):
                raise OSError(f"{written} of {len(data)} bytes written")
            if self._sync:
                os.fsync(self._file.fileno())
        except (OSError, ValueError) as error:
            self._break(error)
            return
        self.seq += 1

    def flush(self) -> None:
        """Write what is buffered."""
        if self._flushed == self.seq or self.broken:
            return
        self._flushed = self.seq
        try:
            self._file.flush()
        except (OSError, ValueError) as error:
            self._break(error)

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

    def _break(self, error: Exception) -> None:
        if not self.broken:
            LOGGER.error("event log %s ends by line %d: %s", self.path, self.seq, error)
        self.broken = True
