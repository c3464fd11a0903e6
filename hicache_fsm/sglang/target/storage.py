"""A storage whose every answer waits for the test: SGLang loads it as its ``dynamic`` backend.

It keeps real page bytes in memory. A call from an I/O thread is held inside the backend until it is told what to say.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

Kind = Literal["exists", "read", "write"]


class StorageFaultError(RuntimeError):
    """What a storage call raises when the sequence says that it fails so."""


@dataclass(slots=True)
class Verdict:
    """What a held call is told. ``pages`` None: what storage really holds; else so many of the leading pages."""

    pages: int | None = None
    raises: bool = False


@dataclass(slots=True)
class Call:
    """A call held in the backend, by an I/O thread."""

    kind: Kind
    keys: list[str]
    go: threading.Event = field(default_factory=threading.Event)
    verdict: Verdict = field(default_factory=Verdict)


class GatedStorage(HiCacheStorage):  # type: ignore[misc]
    """One attached backend. ``held`` is keyed by thread; all but the held calls belong to the scheduler's thread."""

    def __init__(self, storage_config: Any, kwargs: Any) -> None:
        self.stored: dict[str, torch.Tensor | None] = {}
        """Page bytes by hash; None is a page whose bytes the test does not care about."""
        self.unreadable: set[str] = set()
        self._held: dict[int, Call] = {}
        self._lock = threading.Lock()
        self._open = False

    # ---- the test's side

    def holds(self, thread: int | None) -> bool:
        """Whether a thread is held in here."""
        with self._lock:
            return thread in self._held

    def call(self, thread: int | None) -> Call | None:
        """The call that a thread is held in."""
        with self._lock:
            return self._held.get(thread) if thread is not None else None

    def release(self, thread: int, verdict: Verdict) -> None:
        """Tell a held call what to say. Raises ``KeyError`` if the thread is not held."""
        with self._lock:
            call = self._held.pop(thread)
        call.verdict = verdict
        call.go.set()

    def release_all(self, *, and_stay_open: bool) -> None:
        """Every held call answers that nothing is there and nothing was done; later ones too while it stays open."""
        with self._lock:
            self._open = and_stay_open
            calls, self._held = list(self._held.values()), {}
        for call in calls:
            call.verdict = Verdict(pages=0)
            call.go.set()

    # ---- SGLang's side

    def _told(self, kind: Kind, keys: Sequence[str]) -> Verdict:
        call = Call(kind, list(keys))
        with self._lock:
            if self._open:
                return Verdict(pages=0)
            self._held[threading.get_ident()] = call
        call.go.wait()
        if call.verdict.raises:
            raise StorageFaultError(f"storage failed while it was asked to {kind}")
        return call.verdict

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many leading pages are stored."""
        verdict = self._told("exists", keys)
        if verdict.pages is not None:
            return min(verdict.pages, len(keys))
        return next((place for place, key in enumerate(keys) if key not in self.stored), len(keys))

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """The pages' bytes, None from the first that cannot be read."""
        verdict = self._told("read", keys)
        pages: list[torch.Tensor | None] = []
        for place, (key, blank) in enumerate(zip(keys, target_locations, strict=True)):
            there = key in self.stored and key not in self.unreadable
            if verdict.pages is not None:
                there = place < verdict.pages
            if not there:
                return pages + [None] * (len(keys) - place)
            held = self.stored.get(key)
            pages.append(blank if held is None else held)
        return pages

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Whether all pages were written."""
        verdict = self._told("write", keys)
        done = len(keys) if verdict.pages is None else verdict.pages
        for key, value in list(zip(keys, values, strict=True))[:done]:
            self.stored[key] = value.clone()
        return done >= len(keys)

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        """One page; see ``batch_get``."""
        return self.batch_get([key], [target_location])[0]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """One page; see ``batch_set``."""
        return self.batch_set([key], [value])

    def exists(self, key: str) -> bool:
        """One page; see ``batch_exists``."""
        return bool(self.batch_exists([key]))

    def clear(self) -> None:
        """Everything stored is gone; upstream's clear calls this."""
        self.stored.clear()
        self.unreadable.clear()

    def close(self) -> None:
        """Nothing that is held may outlive the attachment."""
        self.release_all(and_stay_open=True)
