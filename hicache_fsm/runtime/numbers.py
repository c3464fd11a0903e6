"""How often each request id has been queued."""

from collections import OrderedDict
from typing import Final

REMEMBERED: Final = 65_536
"""How many ids keep their count after they are gone, so that memory stays bounded."""


class AttemptNumbers:
    """Counts attempts per request id, from 0; the ids used longest ago are forgotten first."""

    __slots__ = ("_next", "_remembered")

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._next: OrderedDict[str, int] = OrderedDict()
        self._remembered = remembered

    def take(self, rid: str, after: int = -1) -> int:
        """The number of the id's next attempt, greater than `after` even if the id was forgotten."""
        number = max(self._next.pop(rid, 0), after + 1)
        self._next[rid] = number + 1
        if len(self._next) > self._remembered:
            self._next.popitem(last=False)
        return number

    def newest(self, rid: str) -> int:
        """The number of the id's newest attempt, -1 if it has none or was forgotten."""
        return self._next.get(rid, 0) - 1
