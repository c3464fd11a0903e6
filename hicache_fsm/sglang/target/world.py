"""What a world of pages means in tokens: prompts, page hashes, sizes. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

PAGE = 8
"""Tokens a page: a prompt's last token and all its output fit into one page beyond the prompt's own."""
TAIL = 3
"""The token after a prompt's pages: SGLang never matches the last one, so that without it a page were lost."""
OUTPUT = 4
"""Tokens a request may produce."""
FIRST, BASE = 10, 200


@dataclass(frozen=True, slots=True)
class PlainWorld:
    """``hicache_fsm.suite.protocol.World``, as it comes over the pipe; sizes are pages, periods passes."""

    prompts: Mapping[str, tuple[str, ...]]
    mode: str
    policy: str
    interval: int
    max_attempts: int
    threshold: int
    pool: int
    host: int
    context: int
    cap_fraction: float
    storage: tuple[str, ...]
    device: tuple[str, ...] = ()
    in_order: bool = False
    """Whether storage answers only in the order in which SGLang's threads ask it."""
    stuck: bool = False
    """Whether a storage call that is held outlasts upstream's wait for it when the cache is reset or detached."""
    machine_pins: bool = False
    """Whether the pin cap is the machine's, which leaves room for a page more than the context, or upstream's."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """Raises ``TypeError`` or ``KeyError`` for anything else than a world."""
        known = {name: fields[name] for name in cls.__slots__ if name in fields}
        known["prompts"] = {rid: tuple(pages) for rid, pages in fields["prompts"].items()}
        known["storage"] = tuple(fields.get("storage", ()))
        known["device"] = tuple(fields.get("device", ()))
        return cls(**known)

    @property
    def pool_tokens(self) -> int:
        """The device pool: one page more than the world says, for the page that output goes to."""
        return (self.pool + 1) * PAGE

    @property
    def context_tokens(self) -> int:
        """The longest request, with the same page more, so that pool minus context stays what the world says.

        A context of 0 is one that nobody told SGLang, as by its default: then the pool bounds a request.
        """
        return (self.context + 1) * PAGE if self.context else self.pool_tokens

    @property
    def host_tokens(self) -> int:
        """The host pool."""
        return self.host * PAGE

    @property
    def fraction(self) -> float:
        """The share of the pool that pins may hold, such that it is what the world says, in whole pages."""
        return (int(self.cap_fraction * self.pool) * PAGE + 0.5) / self.pool_tokens


@dataclass(slots=True)
class Pages:
    """Names of pages, as tokens and as hashes. A page hangs below the same pages wherever it occurs."""

    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The pages from the start of a prompt up to and with the named one."""
    _index: dict[str, int] = field(default_factory=dict)

    def learn(self, pages: Sequence[str]) -> None:
        """Hang each page below the one before, unless it hangs somewhere already."""
        path: tuple[str, ...] = ()
        for page in pages:
            path = self.paths.setdefault(page, (*path, page))
            self._index.setdefault(page, len(self._index))

    def tokens(self, pages: Iterable[str]) -> list[int]:
        """The tokens of some pages, in their order."""
        found: list[int] = []
        for page in pages:
            number = self._index.setdefault(page, len(self._index))
            head = [FIRST + number // BASE, FIRST + number % BASE]
            found += head + [FIRST + (number * 7 + slot) % BASE for slot in range(PAGE - 2)]
        return found
