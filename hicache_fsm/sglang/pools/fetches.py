"""Questions, reads into host pages, and holds: the effects of the prefetch and operation machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

import torch

from hicache_fsm.executor.errors import NotReadError, OwnershipError
from hicache_fsm.runtime import Anchor, AttemptKey, Completion, Undo

from .books import Books
from .versions import tree_key

NOTHING = torch.empty(0, dtype=torch.int64)


@dataclass(slots=True, eq=False)
class Part:
    """Host pages that have been read: ``slots`` host slots for the tokens from ``start`` of the prompt on."""

    start: int
    slots: torch.Tensor


@dataclass(slots=True, eq=False)
class Fetch:
    """One operation: what SGLang's own has in its queues, and the host slots it owns; ``filled`` counts tokens.

    ``busy`` while an I/O thread owes the last acknowledgement.
    """

    number: int
    operation: Any = None
    start: int = 0
    slots: torch.Tensor = field(default_factory=lambda: NOTHING)
    filled: int = 0
    busy: bool = False
    orphan: bool = False


class FetchSide(Books):
    """``_fetches`` by operation number, ``_asked`` by the identity of SGLang's operation."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._fetches: dict[int, Fetch] = {}
        self._asked: dict[int, Fetch] = {}
        self._holds: dict[AttemptKey, dict[int, Part]] = {}
        self._pins: dict[AttemptKey, tuple[Any, int]] = {}

    # ---- effects

    def room(self, key: AttemptKey, pages: int) -> str:
        """The controller's own limit, then the host pool as it is: leaving pages count as taken."""
        if self.controller.prefetch_rate_limited():
            return "rate_limited"
        return "" if pages * self.page_size <= int(self.host.available_size()) else "host_capacity"

    def ask(self, key: AttemptKey, op: int, tokens: int, undo: Undo) -> None:
        prompt, names = self._span(key), self.names(key)
        start = self._base(key)
        # the operation carries the tree's key and the hash of the page before it, as upstream's does
        span = tree_key(prompt[start : start + tokens - tokens % self.page_size])
        before = names[start // self.page_size - 1] if start else None
        fetch = Fetch(op, start=start)
        undo(lambda: self._forget(fetch))
        self._fetches[op] = fetch
        fetch.operation = self.controller.prefetch(self.release.handle(key), span, before, None)
        fetch.busy = True
        self._asked[id(fetch.operation)] = fetch

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None:
        fetch = self._fetches[op]
        undo(lambda: self._drop_read(fetch))
        fetch.slots = self._take_host(pages)
        operation = fetch.operation
        operation.hash_value = operation.hash_value[:pages]
        operation.storage_hit_count = pages * self.page_size
        operation.host_indices = fetch.slots
        self.controller.prefetch_buffer.put(operation)
        fetch.busy = True

    def end_operation(self, key: AttemptKey, op: int) -> None:
        self._forget(self._operation(key, op))

    def stage_hold(self, key: AttemptKey, op: int, pages: int) -> None:
        fetch = self._operation(key, op)
        part = self._keep(fetch, pages)
        self._forget(fetch)
        self._hold(key, op, part)

    def free_pages(self, key: AttemptKey, op: int) -> None:
        self._forget(self._operation(key, op))

    def orphan_operation(self, key: AttemptKey, op: int) -> None:
        fetch = self._operation(key, op)
        fetch.orphan = True
        if fetch.busy:
            self.controller.terminate_prefetch(fetch.operation)
        elif not len(fetch.slots):
            self._forget(fetch)

    def cut_operation(self, key: AttemptKey, op: int, pages: int) -> None:
        fetch = self._operation(key, op)
        self._hold(key, op, self._keep(fetch, pages))
        fetch.orphan = True
        if fetch.busy:
            self.controller.terminate_prefetch(fetch.operation)

    def free_orphan_pages(self, op: int) -> None:
        fetch = self._fetches.get(op)
        if fetch is not None:
            self._forget(fetch)

    def release_hold(self, key: AttemptKey, pages: int) -> None:
        for part in self._holds.pop(key, {}).values():
            self._free_host(part.slots)

    def lock_anchor(self, key: AttemptKey, node: Any, tokens: int, undo: Undo) -> None:
        handle, names = self.release.handle(key), self.names(key)
        if node not in names:
            raise OwnershipError(f"{node} is no page of the prompt of {key}")
        undo(lambda: self.unlock_anchor(key, node, tokens))
        self._pins[key] = (handle, tokens)
        prefix = self._span(key)[: (names.index(node) + 1) * self.page_size]
        self.pipeline.set_prefix_ctx(handle, prefix)
        verdict = self.release.lock_anchor(handle)
        if verdict != "locked":
            raise OwnershipError(f"SGLang would not pin {node} for {key}: {verdict}")

    def unlock_anchor(self, key: AttemptKey, node: Any, tokens: int) -> None:
        handle = self._pins.pop(key, (self.release.handle(key), 0))[0]
        self.pipeline.release_anchor_lock(handle)
        self.pipeline.pop_prefix_ctx(handle)

    # ---- the embedder's

    def match(self, key: AttemptKey) -> tuple[Anchor | None, int]:
        """The anchor of an attempt's prompt on the device, None for none, and the tokens that ``issue`` is to ask for.

        Whole pages only; what a hold has already is not asked for again.
        """
        found = self._live(key)
        held = len(found.slots)
        missing = len(self._span(key)) - self._base(key)
        if not held:
            return None, missing
        return Anchor(self.names(key)[held // self.page_size - 1], found.pin_tokens), missing

    def read_tokens(self, op: int) -> int:
        """Tokens that a read has brought by the last ``drain``: what ``cut`` and ``expire`` may keep."""
        fetch = self._fetches.get(op)
        return min(fetch.filled, len(fetch.slots)) if fetch is not None else 0

    # ---- answers

    def _drain_answers(self) -> None:
        for operation in _taken(self.controller.prefetch_hit_queue):
            fetch = self._asked.get(id(operation))
            if fetch is not None:
                self._answered(fetch)
        for ack in _taken(self.controller.ack_prefetch_queue):
            fetch = self._asked.get(id(ack.operation))
            if fetch is not None and ack.completed_tokens is not None:
                fetch.filled = ack.completed_tokens
            if ack.completed_req:
                self._left(ack.operation)
                if fetch is not None:
                    self._read_ended(fetch)

    def _answered(self, fetch: Fetch) -> None:
        fetch.busy = False
        stored = int(fetch.operation.storage_hit_count)
        if fetch.orphan:
            self._forget(fetch)
            self._post(Completion(fetch.number, "miss", why="terminated"))
        elif stored >= max(1, int(self.tree.prefetch_threshold)):
            self._post(Completion(fetch.number, "hit", stored, len(fetch.operation.token_ids)))
        else:
            self._post(Completion(fetch.number, "miss", why="below_threshold" if stored else "absent"))

    def _read_ended(self, fetch: Fetch) -> None:
        fetch.busy = False
        if fetch.filled and not fetch.orphan:
            self._post(Completion(fetch.number, "done", tokens=fetch.filled))
        else:
            self._post(Completion(fetch.number, "fail", why="discarded" if fetch.orphan else "read_error"))

    # ---- books

    def _base(self, key: AttemptKey) -> int:
        """Where the next question begins: behind the hold, else behind what the device has."""
        ends = [part.start + len(part.slots) for part in self._holds.get(key, {}).values()]
        return max(ends) if ends else len(self._live(key).slots)

    def _operation(self, key: AttemptKey, op: int) -> Fetch:
        """The operation, with the pages that a former, failed try of the same event made a hold."""
        fetch = self._fetches.setdefault(op, Fetch(op))
        parts = self._holds.get(key, {})
        if op in parts:
            kept = parts.pop(op)
            fetch.start, fetch.slots = kept.start, torch.cat([kept.slots, fetch.slots])
            fetch.filled = max(fetch.filled, len(kept.slots))
            if not parts:
                del self._holds[key]
        return fetch

    def _keep(self, fetch: Fetch, pages: int) -> Part:
        tokens = pages * self.page_size
        if tokens > min(fetch.filled, len(fetch.slots)):
            read = fetch.filled // self.page_size
            raise NotReadError(f"operation {fetch.number} has read {read} pages, not {pages}")
        kept, fetch.slots = fetch.slots[:tokens], fetch.slots[tokens:]
        return Part(fetch.start, kept)

    def _hold(self, key: AttemptKey, op: int, part: Part) -> None:
        if len(part.slots):
            self._holds.setdefault(key, {})[op] = part

    def _drop_read(self, fetch: Fetch) -> None:
        """Pages go back; to one that may still write them, once it is acknowledged. The next read is a new one."""
        slots, fetch.slots, fetch.filled = fetch.slots, NOTHING, 0
        if not fetch.busy or not len(slots):
            self._free_host(slots)
            return
        operation = fetch.operation
        self.controller.terminate_prefetch(operation)
        self._leave(operation, slots)
        del self._asked[id(operation)]
        fetch.operation = self._again(operation)
        fetch.busy = False
        self._asked[id(fetch.operation)] = fetch

    @staticmethod
    def _again(operation: Any) -> Any:
        """SGLang's operation once more, answered as it was and not in any queue: a stopped one stays stopped."""
        handle = getattr(operation, "handle", operation.request_id)
        twin = type(operation)(handle, operation.token_ids, operation.last_hash)
        twin.hash_value, twin.storage_hit_count = list(operation.hash_value), operation.storage_hit_count
        twin.all_hash_values = operation.all_hash_values
        return twin

    def _forget(self, fetch: Fetch) -> None:
        """The operation owns nothing and is told nothing any more; a question that is out is stopped."""
        self._drop_read(fetch)
        if fetch.operation is not None:
            if fetch.busy:
                self.controller.terminate_prefetch(fetch.operation)
            self._asked.pop(id(fetch.operation), None)
        if self._fetches.get(fetch.number) is fetch:
            del self._fetches[fetch.number]


def _taken(queue: Any) -> Iterator[Any]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
