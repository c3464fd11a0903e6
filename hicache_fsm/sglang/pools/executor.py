"""An ``Executor`` on the pools, the tree and the controller of a real SGLang scheduler."""

from __future__ import annotations

from typing import Any

from hicache_fsm.runtime import HiCacheLifecycle

from .books import Prompt
from .writes import WriteSide


class SGLangPools(WriteSide):
    """Effects on SGLang's own objects, 0.5.19 and 0.5.20 to 0.5.23; ``buffer_only`` mode, dense, one rank.

    Questions and reads are SGLang's ``PrefetchOperation`` in its controller's queues, served by its threads; host
    pages come from its host pool, slots from its token-to-KV allocator, pins from ``BufferModePipeline``, paths are
    locked by its tree. Upstream's own decisions (``check_hicache_events``, its retries) must not run beside it:
    ``drain`` takes their place.
    """

    def __init__(self, scheduler: Any, prompt: Prompt) -> None:
        """``prompt`` gives the token ids of an attempt. Raises ``ValueError`` for a scheduler not covered."""
        super().__init__(scheduler, prompt)

    def connect(self, life: HiCacheLifecycle) -> None:
        """Answers go to this lifecycle from here on."""
        self._post = life.post

    def drain(self) -> None:
        """Book what SGLang's threads and copies have acknowledged, and post the answers; once a pass, first."""
        self._drain_writes()
        self._drain_copies()
        self._drain_answers()

    @property
    def empty(self) -> bool:
        """Whether nothing but nodes of the tree is held, and no acknowledgement is owed."""
        return not any(self._owned().values())

    def disagreements(self, life: HiCacheLifecycle) -> list[str]:
        """Where these books, SGLang's and the lifecycle's differ, one line each; empty while all is well."""
        found, page = [str(violation) for violation in life.check()], self.page_size
        owned = self._owned()
        fetched = owned["fetches"] + owned["holds"]
        used = fetched + owned["fillings"] + owned["leaving"] + owned["writes"]
        occupied = used - owned["writes"]
        pins = self.pipeline.anchor_locks
        for what, here, there in (
            ("host pages used", used, int(self.host.size - self.host.available_size()) // page),
            ("occupied pages", occupied, self.controller.prefetch_tokens_occupied // page),
            ("pages of the lifecycle", fetched, life.occupied_tokens // page),
            ("pins", len(self._pins), len(pins)),
            ("tokens pinned", sum(tokens for _, tokens in self._pins.values()), life.pinned_tokens),
            ("tokens SGLang pins", life.pinned_tokens, self.pipeline.anchor_locked_tokens_),
        ):
            if here != there:
                found.append(f"{what}: {here} here, {there} there")
        return found

    def _owned(self) -> dict[str, int]:
        """Host pages by owner, and how many seats and pins there are."""
        tokens = {
            "fetches": sum(len(fetch.slots) for fetch in self._fetches.values()),
            "holds": sum(len(part.slots) for parts in self._holds.values() for part in parts.values()),
            "fillings": sum(len(seat.pages) for seat in self._copies.values() if seat.pages is not None),
            "leaving": sum(len(slots) for _, parts in self._leaving.values() for slots in parts),
            "writes": sum(len(write.slots) for write in self._open_writes()),
        }
        pages = {name: count // self.page_size for name, count in tokens.items()}
        return pages | {"operations": len(self._fetches), "seats": len(self._seats), "pins": len(self._pins)}
