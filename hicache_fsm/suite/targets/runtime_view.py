"""The state of a driven lifecycle: owners counted in the pools' books, totals in the lifecycle's."""

from typing import TYPE_CHECKING

from hicache_fsm.suite.protocol import Observed, RequestView
from hicache_fsm.suite.targets.engine import Request

if TYPE_CHECKING:
    from hicache_fsm.suite.targets.runtime import RuntimeCache


def observe(cache: "RuntimeCache") -> Observed:
    """Everything, so that a check can hold one book against the other."""
    life, slots = cache.life, cache.slots
    requests = {
        rid: _view(cache, cache.requests[rid]) if rid in cache.requests else RequestView()
        for rid in cache.world.prompts
    }
    filling = slots.total("fill")
    return Observed(
        now=life.now,
        requests=requests,
        asked={rid: len(request.questions) for rid, request in cache.requests.items()},
        pinned=life.pinned_tokens,
        pin_cap=life.settings.pin_cap,
        occupied=life.occupied_tokens + filling,
        host_free=slots.free,
        pool_free=cache.world.pool - cache.used(),
        orphans=len(life.orphans),
        believed=frozenset(_believed(cache)),
        stored=frozenset(cache.storage.pages),
        evicted=frozenset(cache.storage.lost),
        idle=life.idle and not filling and not cache.storage.writing,
        filling=filling,
        orphan_pages=slots.total("op") - sum(each.pages for each in requests.values()),
        faults=(*slots.faults, *_unequal(cache)),
    )


def _unequal(cache: "RuntimeCache") -> list[str]:
    """Where the lifecycle's count of host pages is not that of the slots with an owner."""
    owned, counted = cache.slots.total("op") + cache.slots.total("hold"), cache.life.occupied_tokens
    return [f"conservation: {owned} host pages are owned, {counted} counted"] if owned != counted else []


def _view(cache: "RuntimeCache", request: Request) -> RequestView:
    attempt = cache.life._core.find(request.key)
    if attempt is None:
        return RequestView("finished", request.key.attempt)
    state = cache.state(request)
    if state == "scheduled":
        state = "running" if cache.runs(request) else "finished"
    hold = cache.slots.of(("hold", request.key))
    return RequestView(
        state,
        request.key.attempt,
        attempt.marker,
        attempt.spent,
        attempt.op is not None,
        cache.reading(attempt.op.number) if attempt.op is not None else 0,
        hold,
        cache.pools.locked.get(request.key, 0),
        hold,
        request.questions[-1].base if request.questions else None,
    )


def _believed(cache: "RuntimeCache") -> list[str]:
    layout = cache.world.layout
    pages = {page for prompt in cache.world.prompts.values() for page in prompt}
    pages |= {page.rpartition(".")[2] for page in cache.world.storage}
    found = [page for page in pages if cache.life.beliefs.state("kv", page) == "believed"]
    if layout != "dense":
        found += [
            f"{layout}.{page}" for page in pages if cache.life.beliefs.state(layout, page) == "believed"
        ]
    return found
