"""What all sides share: the scheduler's objects, host pages on their way back, and the tree's locks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hicache_fsm.executor.errors import PoolExhaustedError
from hicache_fsm.runtime import AttemptKey, Completion, WriteCompletion

from .versions import Match, page_hashes, release

Prompt = Callable[[AttemptKey], Sequence[int]]


class Books:
    """One scheduler's pools, tree and controller. All of it belongs to the scheduler's thread.

    An I/O thread has host pages from the moment its operation is queued until the controller acknowledges it
    for the last time. Pages that are given back in between are *leaving*: nobody's, and not free (#31668).
    """

    def __init__(self, scheduler: Any, prompt: Prompt) -> None:
        """``prompt`` gives the token ids of an attempt. Raises ``ValueError`` for a scheduler not covered."""
        self.release = release(scheduler)
        self.tree, self.controller = self.release.tree, self.release.controller
        self.pipeline = self.release.pipeline
        self.allocator = scheduler.token_to_kv_pool_allocator
        self.host = self.controller.mem_pool_host
        self.page_size = int(self.tree.page_size)
        # the lifecycle decides what is written, so that no insert may
        self.tree.write_through_threshold = 1 << 30
        self._prompt = prompt
        self._post: Callable[[Completion | WriteCompletion], object] = self._unconnected
        self._leaving: dict[int, tuple[Any, list[torch.Tensor]]] = {}
        self._nodes: dict[Hashable, tuple[int, ...]] = {}

    def names(self, key: AttemptKey) -> tuple[str, ...]:
        """Storage's names of the whole pages of an attempt's prompt, in order."""
        return page_hashes(self._prompt(key), self.page_size)

    def _span(self, key: AttemptKey) -> list[int]:
        """The prompt's tokens in whole pages."""
        tokens = list(self._prompt(key))
        return tokens[: len(tokens) - len(tokens) % self.page_size]

    def _live(self, key: AttemptKey) -> Match:
        return self.release.match(self._span(key))

    def _take_host(self, pages: int) -> torch.Tensor:
        slots = self.host.alloc(pages * self.page_size)
        if slots is None:
            free = int(self.host.available_size()) // self.page_size
            raise PoolExhaustedError(f"host pool: {pages} pages wanted, {free} free")
        self.controller.prefetch_tokens_occupied += len(slots)
        taken: torch.Tensor = slots
        return taken

    def _free_host(self, slots: torch.Tensor) -> None:
        if len(slots):
            self.host.free(slots)
            self.controller.prefetch_tokens_occupied -= len(slots)

    def _leave(self, operation: Any, slots: torch.Tensor) -> None:
        """Give pages back once the controller has acknowledged the operation that may still write them."""
        if len(slots):
            self._leaving.setdefault(id(operation), (operation, []))[1].append(slots)

    def _left(self, operation: Any) -> None:
        """The operation was acknowledged for the last time."""
        for slots in self._leaving.pop(id(operation), (None, ()))[1]:
            self._free_host(slots)

    @contextmanager
    def _all_locked_but(self, node: Hashable) -> Iterator[None]:
        """Lock every other known path: SGLang evicts by age, and knows no node by name."""
        locks = []
        try:
            for other, tokens in self._nodes.items():
                if other != node:
                    found = self.release.match(tokens).node
                    locks.append((found, self.tree.inc_lock_ref(found).to_dec_params()))
            yield
        finally:
            for found, lock in locks:
                self.tree.dec_lock_ref(found, lock)

    @staticmethod
    def _unconnected(answer: Completion | WriteCompletion) -> object:
        raise RuntimeError("an answer came before `connect`")
