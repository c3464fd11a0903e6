"""Writes the event log (docs/event-log.md, schema 1): one line and one write per event."""

import json
import os
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from hicache_fsm.runtime.settings import LOGGER, Settings

SCHEMA: Final = 1


text = encode_basestring_ascii
"""A string as JSON."""


class EventLog:
    """An event log being written.

    Lines are unbuffered: a crash of the process costs at most the line it was in. With `sync` each line is
    also flushed to the disk, which a crash of the machine would need. A line that cannot be written is
    reported once through `logging`, `broken` is set, and the log stays silent from there on: it must not stop
    an engine.
    """

    __slots__ = ("_engine", "_file", "_seq", "_sync", "broken", "path")

    def __init__(
        self,
        path: Path,
        *,
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
        self._seq = 0
        self._engine: dict[str, object] = {
            "version": version,
            "threshold_tokens": threshold_tokens,
            "rank": rank,
            "ranks": ranks,
        }
        self._file = path.open("wb", buffering=0)

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

    def members(self, body: Mapping[str, object]) -> None:
        """Write a line from its members, `seq` excepted."""
        self.line(json.dumps(body, separators=(",", ":"))[1:-1])

    def line(self, body: str) -> None:
        """Write a line from its members as JSON text without the braces, `seq` excepted: the fast way."""
        if self.broken:
            return
        line = f'{{"seq":{self._seq},{body}}}\n'.encode()
        try:
            written = self._file.write(line)
            if written != len(line):
                raise OSError(f"{written} of {len(line)} bytes written")
            if self._sync:
                os.fsync(self._file.fileno())
        except (OSError, ValueError) as error:
            self.broken = True
            LOGGER.error("event log %s ends after line %d: %s", self.path, self._seq, error)
            return
        self._seq += 1

    def trailer(self, now: int, *, idle: bool, residue: Mapping[str, int]) -> None:
        """Write the last line: the pass, whether nothing was queued or running, and what was still owned."""
        self.members({"kind": "trailer", "pass": now, "idle": idle, "residue": dict(residue)})

    def close(self) -> None:
        """Close the file; `trailer` first, or readers will report a missing end."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
