"""What this package has to know of a release of SGLang by its number; docs/harness.md has how they differ.

Whatever shows in the engine's own objects is read there instead. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def profile(version: str) -> tuple[str, Mapping[str, object]]:
    """The profile that says what a release decides, and the constants in which it departs from that profile."""
    if version == "0.5.19":
        return "seed", NOTHING
    # a span too short to be asked about still arms a re-issue; 0.5.21 mended it (#40042)
    return "sglang-0.5.23", {"arms_too_short": True} if version == "0.5.20" else NOTHING


def write_launch(version: str) -> str:
    """The method of ``BufferModePipeline`` by which a write leaves the device."""
    return "_launch_backup_intent" if version in ("0.5.19", "0.5.20") else "_stage_backup_intent"


def learns_from_answers(version: str) -> bool:
    """Whether an answer raises beliefs; earlier releases only lower them by one."""
    return version not in ("0.5.19", "0.5.20", "0.5.21")


def survives_errors(version: str) -> bool:
    """Whether the storage threads outlive a call that raises."""
    return version not in ("0.5.19", "0.5.20", "0.5.21")
