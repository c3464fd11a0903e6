"""The runtime's beliefs in a world of writes, questions, fetches and losses of one chain's pages."""

from collections.abc import Iterator
from itertools import product

from hicache_fsm.conform.graph import State
from hicache_fsm.conform.pools import WriteQueue
from hicache_fsm.conform.runtime_side import Choice
from hicache_fsm.model.belief import Scope
from hicache_fsm.runtime import HiCacheLifecycle
from hicache_fsm.spec import Spec

Page = tuple[str, int]


class BeliefDriver:
    """Storage is a set of pages.  Beliefs fall out of an LRU set of half a million, so `overflow` is out of reach."""

    def __init__(self, spec: Spec, profile: str, scope: Scope, names: tuple[str, ...]) -> None:
        self.names = names
        self._again = spec, profile, scope, names
        self._scope = scope
        self._writes = WriteQueue()
        self._life = HiCacheLifecycle(
            profile, pool_tokens=16, max_context_len=1, spec=spec, executor=self._writes
        )
        self._stored: set[Page] = set()
        self._fetching = False

    def choices(self) -> Iterator[Choice]:
        """What a cache and a storage may do."""
        for pool, page in self._scope.pages:
            yield "write", pool, page
            if (pool, page) in self._writes.writing:
                yield "stored", pool, page
                yield "write_failed", pool, page
            if (pool, page) in self._stored:
                yield "lose", pool, page
        yield "ask", self._leading("kv", range(self._scope.chain))
        if not self._fetching:
            yield ("fetch",)
        else:
            first = self._scope.chain - self._scope.trailing
            most = (
                self._leading("kv", range(self._scope.chain)),
                self._leading("aux", range(first, self._scope.chain)),
            )
            yield from (("end", *ends) for ends in product(range(most[0] + 1), range(most[1] + 1)))
        yield ("clear",)
        yield ("detach",)
        yield ("reset",)

    def take(self, choice: Choice) -> bool:
        """Do it."""
        match choice:
            case ("write", str() as pool, page):
                return bool(self._life.write(pool, [page]))
            case ("stored", str() as pool, int() as page):
                self._life.stored(pool, [page])
                self._stored.add((pool, page))
            case ("write_failed", str() as pool, page):
                self._life.write_failed(pool, [page])
            case ("lose", str() as pool, int() as page):
                self._stored.remove((pool, page))
            case ("ask", int() as hit):
                self._life.confirm("kv", range(hit))
                self._life.deny("kv", range(hit, self._scope.chain))
            case ("fetch",):
                self._fetching = True
            case ("end", int() as done, int() as hit):
                self._end(done, hit)
            case ("clear",):
                self._stored.clear()
                self._life.clear()
            case ("detach",):
                self._stored.clear()
                self._life.detach()
                self._life.attach()
            case ("reset",):
                self._life.flush()
        return True

    def label(self, choice: Choice) -> str:
        """The event, and the page or how the fetch ended."""
        match choice:
            case ("end", int() as done, int() as hit):
                return "done" if self._is_whole(done, hit) else "discard"
            case (event, pool, page):
                return f"{event} {pool}{page}"
        return str(choice[0])

    def restart(self) -> "BeliefDriver":
        """The same lifecycle once it believes nothing and writes nothing."""
        self._life.clear()
        self._life.flush()
        if len(self._life.beliefs) or self._writes.writing:
            return BeliefDriver(*self._again)
        self._stored.clear()
        self._fetching = False
        return self

    def observe(self) -> State:
        """What is believed of each page, and what storage holds."""
        values: dict[str, int | str] = {"fetching": int(self._fetching)}
        for pool, page in self._scope.pages:
            values[f"{pool}{page}.state"] = self._life.beliefs.state(pool, page)
            values[f"{pool}{page}.stored"] = int((pool, page) in self._stored)
        return tuple(values[name] for name in self.names)

    def _leading(self, pool: str, pages: range) -> int:
        """How many leading ones of `pages` are stored."""
        missing = (n for n, page in enumerate(pages) if (pool, page) not in self._stored)
        return next(missing, len(pages))

    def _end(self, done: int, hit: int) -> None:
        self._fetching = False
        chain, trailing = range(self._scope.chain), self._scope.trailing
        for pool, pages in (("kv", chain), ("aux", chain[len(chain) - trailing :])):
            if self._is_whole(done, hit):
                self._life.confirm(pool, pages)
            else:
                self._life.discard(pool, chain, done, [(trailing, hit)])

    def _is_whole(self, done: int, hit: int) -> bool:
        return done == self._scope.chain and hit == self._scope.trailing
