"""The event log kept in memory: what happened last, written only where somebody wants to see it."""

from collections import deque
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from hicache_fsm.runtime.log import EventLog
from hicache_fsm.runtime.settings import LOGGER, Settings
from hicache_fsm.runtime.spelling import Record

EVENTS: Final = 65_536
"""How many events are kept by default: some 15 MB when all are there."""


class FlightRecorder:
    """The newest `events` of a lifecycle, in memory, as the lines that `EventLog` would have written.

    They are spelled by `dump`, at any time and on any thread. With a `path` it is called once by itself: at the
    first illegal event or violation, so that the file shows what led there, else by `close`. That one dump stops
    the scheduler for a microsecond or two an event. A dump that has lost its beginning says so in its header
    (`tail`), and readers refuse to judge it as a whole log. What cannot be written by itself is reported through
    `logging` and does not stop an engine.
    """

    __slots__ = ("_open", "_records", "_settings", "_trailer", "dumped", "events", "note", "path")

    def __init__(
        self,
        path: Path | None = None,
        *,
        events: int = EVENTS,
        version: str = "",
        threshold_tokens: int = 1,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        """The header's members are as `EventLog` has them.  Raises ValueError if no event is to be kept."""
        if events < 1:
            raise ValueError(f"a flight recorder of {events} events keeps nothing: use at least 1")
        self.path = path
        self.events = events
        self.dumped = False
        self._settings: Settings | None = None
        self._trailer: tuple[int, bool, Mapping[str, int]] | None = None
        self._open = partial(
            EventLog, version=version, threshold_tokens=threshold_tokens, rank=rank, ranks=ranks
        )
        # One more than is told, which shows whether anything was lost.
        self._records: deque[Record] = deque(maxlen=events + 1)
        self.note = self._records.append

    def __len__(self) -> int:
        """Events that a dump would tell."""
        return min(len(self._records), self.events)

    def dump(self, path: Path) -> None:
        """Write what is kept as an event log, with a trailer if the lifecycle has closed it.

        Raises OSError if the file cannot be written, and ValueError if no lifecycle has told anything.
        """
        if self._settings is None:
            raise ValueError("no lifecycle has this flight recorder for its log")
        trailer = self._trailer  # before the events, of which it must be the last
        records = list(self._records)
        lost = len(records) > self.events
        with self._open(path) as log:
            log.header(self._settings, tail=lost)
            for record in records[lost:]:
                log.note(record)
            if trailer is not None:
                now, idle, residue = trailer
                log.trailer(now, idle=idle, residue=residue)
        if log.broken:
            raise OSError(f"{path} could not be written whole")

    def header(self, settings: Settings) -> None:
        """The lifecycle begins, with these settings."""
        self._settings = settings

    def flush(self) -> None:
        """A pass is over, which writes nothing."""

    def alarm(self) -> None:
        """An event was illegal, or an invariant is broken: the first time, write what led there."""
        if self.path is None or self.dumped or self._settings is None:
            return
        self.dumped = True
        try:
            self.dump(self.path)
        except OSError as error:
            LOGGER.error("flight recorder cannot write %s: %s", self.path, error)

    def trailer(self, now: int, *, idle: bool, residue: Mapping[str, int]) -> None:
        """The lifecycle tells nothing more."""
        self._trailer = now, idle, residue

    def close(self) -> None:
        """Write what is kept, unless an alarm has."""
        self.alarm()
