"""What the tests of the real SGLang share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_fsm.suite.protocol import Answer, Observed, Reply


@dataclass(frozen=True, slots=True)
class Played:
    """What one run left: its printed lines, its outputs by request id, its log (None: not recorded)."""

    printed: list[str]
    outputs: dict[str, dict[str, Any]]
    log: Path | None

    def events(self) -> list[dict[str, Any]]:
        """The lines of the log, each whole."""
        assert self.log is not None
        text = self.log.read_text()
        assert text.endswith("\n")
        return [json.loads(line) for line in text.splitlines()]


@dataclass(frozen=True, slots=True)
class Driven:
    """A sequence that was driven: the reply to each event, and the state after it."""

    replies: list[Reply]
    observed: list[Observed]

    @property
    def answers(self) -> list[Answer]:
        return [reply.answer for reply in self.replies]

    @property
    def whys(self) -> list[str]:
        return [reply.why for reply in self.replies]

    @property
    def last(self) -> Observed:
        return self.observed[-1]

    def states(self, rid: str) -> list[str]:
        """The state of a request after each event."""
        return [one.requests[rid].state for one in self.observed]
