"""A small scheduler: continuous batching on torch pools, with prefixes from the device and from storage.

`python examples/conversations.py` plays on it, and docs/embedding.md goes through it. The model is a formula, so
that every KV row can be checked.
"""

from collections import Counter
from dataclasses import dataclass

import torch

from hicache_fsm.executor.chains import page_names
from hicache_fsm.executor.embedding import IN_FLIGHT, make_room
from hicache_fsm.executor.stores import Store
from hicache_fsm.executor.torchpools import Sizes, TorchPools
from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle

TOKENS, PAGE, WIDTH = 192, 8, 4
PATIENCE = 5


def kv_rows(tokens: list[int], start: int = 0) -> torch.Tensor:
    """What the model computes for the tokens from position `start` on, shape (tokens, width)."""
    positions = torch.arange(start, len(tokens)).unsqueeze(1) + torch.arange(WIDTH)
    return ((torch.tensor(tokens[start:]).unsqueeze(1) * 31 + positions * 7) % 251).float()


@dataclass
class Request:
    """`tokens` are the prompt and then the output, up to `length`; the first `known` have their KV rows."""

    tokens: list[int]
    length: int
    known: int = 0
    waited: int = 0


class Scheduler:
    """Takes requests by `submit` and `abort`, and does one pass a `step`."""

    def __init__(self, store: Store, *, device: str = "cpu", paced: bool = True) -> None:
        """`paced` lets each pass wait for the I/O of the one before, so that all runs are alike."""
        sizes = Sizes(TOKENS, TOKENS // PAGE, PAGE, WIDTH, threshold=PAGE)
        self.pools = TorchPools(sizes, store, self.chain, device=device, storage_threads=1)
        self.life = HiCacheLifecycle(
            pool_tokens=TOKENS, max_context_len=TOKENS // 2, host_tokens=TOKENS, page_size=PAGE,
            interval=3, executor=self.pools, monitor=True,
        )  # fmt: skip
        self.pools.connect(self.life)
        self.paced = paced
        self.waiting: dict[AttemptKey, Request] = {}
        self.running: dict[AttemptKey, Request] = {}
        self.counts: Counter[str] = Counter()

    def chain(self, key: AttemptKey) -> list[str]:
        """For the pools: the names of a prompt's pages."""
        return page_names((self.waiting | self.running)[key].tokens, PAGE)

    def submit(self, rid: str, prompt: list[int], new: int) -> None:
        """A request for `new` tokens joins the queue."""
        key = self.life.enqueue(rid, len(prompt))
        self.waiting[key] = Request(list(prompt), len(prompt) + new)
        self.ask(key)

    def abort(self, rid: str) -> None:
        """The client goes away, wherever its request is."""
        for key in [key for key in (*self.waiting, *self.running) if key.rid == rid]:
            if key in self.waiting:
                self.life.abort(key)
                del self.waiting[key]
            else:
                self.leave(key)

    def step(self) -> None:
        """One pass: what I/O has brought, whom to ask again, whom to admit, and a token for each that runs."""
        self.pools.drain(wait=self.paced)
        for key in self.life.begin_pass(head=next(iter(self.waiting), None)):
            self.ask(key)
        for key in self.waiting:
            if self.life.state(key) == "parked":
                self.life.unparked(key)
        self.admit()
        self.decode()

    def ask(self, key: AttemptKey) -> None:
        """Ask storage for what the device lacks, and pin the node that the answer is to follow."""
        anchor, missing = self.pools.match(key)
        why = "" if missing else "too_short"
        self.life.issue(key, asks=missing > 0, why=why, tokens=missing, anchor=anchor)

    def admit(self) -> None:
        """Admit whoever waits for no answer, in order, as far as there is room."""
        for key, request in list(self.waiting.items()):
            if self.life.state(key) in IN_FLIGHT:
                continue
            if not make_room(self.life, self.pools, request.length):
                request.waited += 1
                if request.waited > PATIENCE and self.running:
                    self.retract(next(reversed(self.running)))
                return
            self.pools.seat(key, request.length)
            fetched = self.life.admit(key)
            request.known = self.pools.known_tokens(key)
            self.running[key] = self.waiting.pop(key)
            self.counts.update(storage=fetched, device=request.known - fetched)

    def decode(self) -> None:
        """Compute the KV rows that each request lacks, then a token of its output; with the last, it is done."""
        for key in [key for key in self.running if self.pools.ready(key)]:
            request, block = self.running[key], self.pools.seated(key).full
            rows = kv_rows(request.tokens, request.known)
            kv = self.pools.device.rows["kv"]
            kv[block.slots[request.known : len(request.tokens)]] = rows.to(kv.device)
            request.known = len(request.tokens)
            self.counts["computed"] += len(rows)
            if request.known < request.length:
                request.tokens.append(sum(request.tokens) % 97)
                continue
            if not torch.equal(kv[block.slots].cpu(), kv_rows(request.tokens)):
                raise AssertionError(f"{key} ran on KV rows that are not its own")
            self.keep(key)
            self.leave(key)

    def keep(self, key: AttemptKey) -> None:
        """The pages stay on the device as a node, and go to storage as far as there are host pages for it."""
        names = self.chain(key)
        if names and self.pools.span_of(names[-1]) is None:
            self.pools.plant(key, names[-1], names)
            self.life.write("kv", names[: self.pools.host.free_pages])

    def leave(self, key: AttemptKey) -> None:
        """A running request is over."""
        self.life.finish(key)
        self.pools.unseat(key)
        del self.running[key]

    def retract(self, key: AttemptKey) -> None:
        """A running request makes room, and is queued again with the output that it has."""
        request = self.running.pop(key)
        request.known = request.waited = 0
        self.pools.unseat(key)
        again = self.life.retract(key)
        self.waiting[again] = request
        self.ask(again)
