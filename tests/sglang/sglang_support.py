"""What the tests of the real SGLang share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hicache_fsm.sglang.install import DEFAULT_VERSIONS
from hicache_fsm.sglang.install import VERSIONS as KNOWN_VERSIONS
from hicache_fsm.suite.protocol import Answer, Observed, Reply

BETWEEN = tuple(
    pytest.param(version, marks=pytest.mark.soak)
    for version in KNOWN_VERSIONS
    if version not in DEFAULT_VERSIONS
)
"""The versions that are laid out on demand: for `make soak`, and skipped where they are not."""
VERSIONS = (*DEFAULT_VERSIONS, *BETWEEN)
"""What a test of every version is parametrized with."""
SINCE_0520 = (*BETWEEN, "0.5.23")
"""What a test of every version that has handles and ``StoragePrefetchRetries`` is parametrized with."""


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
