"""The words of a sequence: what each event is, who answers it, and what it may answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .engine import GatedEngine
from .look import Looker
from .world import PlainWorld

Answer = tuple[str, str]
"""One of ``hicache_fsm.suite.protocol.Answer``, and why."""
DONE: Answer = ("done", "")


class UnableError(Exception):
    """The engine has no such thing, or there is no way to bring it about; one line."""


class AbsentError(Exception):
    """What the event says cannot happen now; one line."""


@dataclass(frozen=True, slots=True)
class Word:
    """One event, as it comes over the pipe."""

    name: str
    subjects: tuple[str, ...] = ()
    node: str = ""
    amount: int | None = None
    facts: dict[str, str] = field(default_factory=dict)


class Part:
    """Some of the words: each is a method of its name. What they raise beyond these two ends the engine."""

    def __init__(self, engine: GatedEngine, look: Looker, world: PlainWorld) -> None:
        self.engine = engine
        self.look = look
        self.world = world

    def one_pass(self, seen: Iterable[str] | None = (), admitted: Iterable[str] | None = ()) -> list[str]:
        """One scheduling pass; see ``GatedEngine.one_pass``."""
        now: list[str] = []
        with self.look.loads_of(lambda: now):
            now += self.engine.one_pass(seen, admitted)
        return now

    def running(self, rid: str) -> Any:
        """The request of an id if it runs. Raises ``AbsentError``."""
        for one in self.engine.running():
            if one.rid == rid:
                return one
        raise AbsentError(f"{rid} does not run")
