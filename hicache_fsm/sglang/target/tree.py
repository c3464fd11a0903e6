"""The device tree, and storage behind the cache's back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .answers import Answers
from .engine import WRITES, GatedEngine
from .look import Looker
from .storage import Verdict
from .words import DONE, Answer, Part, UnableError, Word
from .world import PAGE, PlainWorld


class Tree(Part):
    """Nodes and pages. A node is named by its last page."""

    def __init__(self, engine: GatedEngine, look: Looker, world: PlainWorld, answers: Answers) -> None:
        super().__init__(engine, look, world)
        self._answers = answers

    def start_resident(self, pages: Iterable[str]) -> None:
        """What the device holds at the start: inserted, written, and then forgotten by storage and beliefs."""
        for page in pages:
            self._put_on_device([page])
        self._settle_writes()
        assert self.engine.storage is not None
        self.engine.storage.clear()
        self.engine._believe_nothing()
        self.engine.written.clear()

    def _put_on_device(self, pages: Iterable[str]) -> bool:
        """Insert a path as a finished request would; whether there was room."""
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams
        from sglang.srt.mem_cache.common import evict_from_tree_cache

        engine = self.engine
        wanted = list(pages)
        known = engine.pages.paths.get(wanted[0])
        path = [*(known or (wanted[0],)), *wanted[1:]]
        engine.pages.learn(path)
        self.look.learn()
        allocator, tree = engine.scheduler.token_to_kv_pool_allocator, engine.tree
        evict_from_tree_cache(tree, len(path) * PAGE)
        slots = allocator.alloc(len(path) * PAGE)
        if slots is None:
            return False
        # the tree frees what it holds already
        tree.insert(InsertParams(key=self.look.radix_key(path), value=slots))
        # the first starts the copy to the host, the second hands it to storage
        engine.drain()
        engine.drain()
        return True

    def insert(self, word: Word) -> Answer:
        """The device holds these pages, each below the one before."""
        return DONE if self._put_on_device(word.subjects) else ("refused", "the device pool is full")

    def split(self, word: Word) -> Answer:
        """The node is split there, as a shorter match would."""
        self.look.resident(word.node)
        return DONE

    def evict(self, word: Word) -> Answer:
        """The node and what hangs below it leave the device."""
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        engine, node = self.engine, word.node
        if not self.look.resident(node):
            return "absent", f"{node} is not on the device"
        with self._locked(other for other, path in engine.pages.paths.items() if node not in path):
            for _ in engine.pages.paths:
                engine.tree.evict(EvictParams(num_tokens=PAGE))
                if not self.look.resident(node):
                    return DONE
        return "refused", f"{node} is locked"

    @contextmanager
    def _locked(self, pages: Iterable[str]) -> Iterator[None]:
        """While these pages are locked, an eviction takes others: it knows no node, only who was used longest ago."""
        tree, locks = self.engine.tree, []
        for page in pages:
            node = self.look.node(page)
            if node is not None:
                locks.append((node, tree.inc_lock_ref(node).to_dec_params()))
        try:
            yield
        finally:
            for node, lock in locks:
                tree.dec_lock_ref(node, lock)

    def _hashes(self, pages: Iterable[str]) -> list[str]:
        names = list(pages)
        for page in names:
            if page.startswith(("swa.", "mamba.")):
                raise UnableError("the dense layout has no auxiliary pool")
            if page not in self.engine.pages.paths:
                self.engine.pages.learn([page])
        self.look.learn()
        return [self.look.hashes[page] for page in names]

    def store(self, word: Word) -> Answer:
        """Storage has these pages, by whatever way."""
        if self.engine.storage is None:
            return "refused", "no storage is attached"
        for key in self._hashes(word.subjects):
            self.engine.storage.stored.setdefault(key, None)
        return DONE

    def drop(self, word: Word) -> Answer:
        """Storage loses these pages and says nothing."""
        if self.engine.storage is None:
            return "refused", "no storage is attached"
        for key in self._hashes(word.subjects):
            self.engine.storage.stored.pop(key, None)
        self.look.dropped.update(word.subjects)
        return DONE

    def write(self, word: Word) -> Answer:
        """An insert offers pages for writing."""
        keys = set(self._hashes(word.subjects))
        if keys <= self.look.being_written():
            return DONE
        if not self._put_on_device(word.subjects):
            return "refused", "the device pool is full"
        if keys & self.look.being_written():
            return DONE
        return "absent", "the cache takes them for stored, or for not worth writing"

    def wack(self, word: Word) -> Answer:
        """The write of pages was acknowledged."""
        fails = word.facts.get("ok") == "no"
        wanted = set(self._hashes(word.subjects))
        if not wanted & self.look.being_written():
            return "absent", "no write of them is under way"
        while wanted & self.look.being_written():
            operation = next(one for one in self.look.writes() if wanted & set(one.hash_value))
            self._answers.reach(WRITES, operation)
            while self.engine.serving(WRITES) is operation:
                call = self.engine.call(WRITES)
                self.engine.tell(WRITES, Verdict(0 if fails and wanted & set(call.keys) else None))
            self.engine.drain()
        return DONE

    def _settle_writes(self) -> None:
        engine = self.engine
        while self.look.being_written():
            self._answers.answer_everything([WRITES])
            engine.drain()

    def clear(self, word: Word) -> Answer:
        """Storage is cleared, as for a client."""
        ok = self.engine.tree.clear_storage_backend()
        return DONE if ok else ("refused", "the engine did not clear its storage")

    def detach(self, word: Word) -> Answer:
        """The backend is detached, as for a client."""
        ok, why = self.engine.detach()
        return DONE if ok else ("refused", why)

    def attach(self, word: Word) -> Answer:
        """An empty backend is attached, as for a client."""
        ok, why = self.engine.attach()
        return DONE if ok else ("refused", why)
