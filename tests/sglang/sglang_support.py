"""What the tests of the real SGLang share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
