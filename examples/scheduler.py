"""A small scheduler: continuous batching on torch pools, with prefixes from storage.

    python examples/scheduler.py            # the account of one run, the same every time
    python examples/scheduler.py cuda       # the pools on a GPU

It has what docs/embedding.md explains: questions before admission, retries, holds, pins, write-back, eviction,
aborts and retraction. The model is a formula, so that every KV row can be checked.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hicache_fsm.executor.backend import torch
from hicache_fsm.executor.slots import Block
from hicache_fsm.executor.stores import MemoryStore, Store
from hicache_fsm.executor.torchpools import Sizes, TorchPools
from hicache_fsm.runtime import Anchor, AttemptKey, HiCacheLifecycle

PAGE, WIDTH = 8, 4
IN_FLIGHT = ("probing", "retrying", "parked", "transferring")
PATIENCE = 8


def kv_rows(tokens: list[int], start: int = 0) -> torch.Tensor:
    """What the model computes for these tokens at positions from `start` on, shape (tokens, width)."""
    at = torch.arange(start, start + len(tokens)).unsqueeze(1) + torch.arange(WIDTH)
    return ((torch.tensor(tokens).unsqueeze(1) * 31 + at * 7) % 251).float()


def page_names(tokens: list[int]) -> list[str]:
    """A name for each whole page, which depends on all tokens up to its end."""
    names, name = [], ""
    for start in range(0, len(tokens) - PAGE + 1, PAGE):
        name = hashlib.sha256(f"{name}{tokens[start : start + PAGE]}".encode()).hexdigest()[:16]
        names.append(name)
    return names


@dataclass(eq=False)
class Request:
    """`tokens` are the prompt and then the output, up to `length`; `shared` pages of it are in `node`."""

    rid: str
    tokens: list[int]
    length: int
    key: AttemptKey
    node: str = ""
    shared: int = 0
    known: int = 0
    waited: int = 0
    state: str = "queued"
    retracted: bool = False


class Scheduler:
    """One pass a `step`.  `say` gets one line for each thing that happens to a request.

    `paced` lets each pass see the answers of the one before, so that runs are alike; in earnest a pass waits for
    nothing.
    """

    def __init__(
        self, store: Store, say: Callable[[str], None], *, device: str, paced: bool, tokens: int = 192
    ) -> None:
        sizes = Sizes(tokens, tokens // PAGE, PAGE, WIDTH, threshold=PAGE)
        threads = 1 if paced else 4
        self.pools = TorchPools(sizes, store, self.chain, device=device, storage_threads=threads)
        self.life = HiCacheLifecycle(
            pool_tokens=tokens, max_context_len=tokens // 2, host_tokens=tokens, page_size=PAGE,
            interval=3, executor=self.pools, monitor=True,
        )  # fmt: skip
        self.pools.connect(self.life)
        self.say = say
        self.paced = paced
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.nodes: dict[str, list[str]] = {}  # pages by node, oldest first
        self.counts: Counter[str] = Counter()

    def submit(self, rid: str, prompt: list[int], new: int) -> None:
        """A request for `new` tokens joins the queue, and asks storage for what the device lacks."""
        request = Request(rid, list(prompt), len(prompt) + new, self.life.enqueue(rid, len(prompt)))
        self.waiting.append(request)
        self.ask(request)

    def abort(self, rid: str) -> None:
        """The client goes away, wherever the request is."""
        for request in [one for one in self.waiting if one.rid == rid]:
            self.say(f"{rid}: aborted while {self.life.state(request.key)}")
            self.life.abort(request.key)
            self.waiting.remove(request)
        for request in [one for one in self.running if one.rid == rid]:
            self.say(f"{rid}: aborted while running")
            self.leave(request)

    def step(self) -> None:
        """One scheduling pass."""
        self.pools.drain(wait=self.paced)
        again = self.life.begin_pass(head=self.waiting[0].key if self.waiting else None)
        self.say(f"pass {self.life.now}")
        for request in self.waiting:
            self.tell(request)
            if request.key in again:
                self.ask(request)
            elif self.life.state(request.key) == "parked":
                self.life.unparked(request.key)
        for names in self.nodes.values():
            self.life.write("kv", names[: self.pools.host.free_pages])
        self.admit()
        self.decode()

    def chain(self, key: AttemptKey) -> list[str]:
        """For the pools: the pages of a prompt that the device does not hold."""
        request = next(one for one in self.waiting if one.key == key)
        return page_names(request.tokens)[request.shared :]

    def ask(self, request: Request) -> None:
        """Ask storage for the pages that no node has, and pin the node that has the others."""
        names = page_names(request.tokens)
        if not request.node:
            served = {node: sum(map(str.__eq__, names, pages)) for node, pages in self.nodes.items()}
            request.node = max(served, key=lambda node: served[node], default="")
            request.shared = served.get(request.node, 0)
        # A pin locks the whole node, so the whole node counts against the cap.
        anchor = Anchor(request.node, len(self.nodes[request.node]) * PAGE) if request.shared else None
        missing = (len(names) - request.shared) * PAGE
        why = "" if missing else "too_short"
        self.life.issue(request.key, asks=missing > 0, why=why, tokens=missing, anchor=anchor)
        self.say(f"{request.rid}: asks for {missing} tokens, the device has {request.shared * PAGE}")

    def admit(self) -> None:
        """Admit whoever waits for no answer, in order, as far as there is room."""
        for request in list(self.waiting):
            if self.life.state(request.key) in IN_FLIGHT:
                continue
            if not self.room(request):
                request.waited += 1
                if request.waited > PATIENCE and self.running and not self.running[-1].retracted:
                    self.retract(self.running[-1])
                return
            span = self.pools.seat(request.key, request.length, request.shared * PAGE)
            fetched = self.life.admit(request.key)
            if request.shared:
                shared = self.pools.device.load("kv", self.pools.span_of(request.node).full)
                self.put(span.full, 0, shared[: request.shared * PAGE])
            request.known = request.shared * PAGE + fetched
            self.counts.update(device=request.shared * PAGE, storage=fetched)
            self.waiting.remove(request)
            self.running.append(request)
            self.say(
                f"{request.rid}: admitted with {request.shared * PAGE} tokens from the device, {fetched} from storage"
            )

    def room(self, request: Request) -> bool:
        """Evict nodes, the request's own last, until the request has room on the device."""
        for node in sorted(self.nodes, key=lambda node: node == request.node):
            if self.pools.device.free_tokens >= request.length:
                break
            if not self.pools.locked(node):
                self.life.evict(node)
                del self.nodes[node]
                for other in self.waiting:
                    if other.node == node:
                        self.lose(other)
        return self.pools.device.free_tokens >= request.length

    def lose(self, request: Request) -> None:
        """The node that a fetch hangs on is gone, and what was fetched has nothing to follow."""
        request.node, request.shared = "", 0
        state = self.life.state(request.key)
        if state == "transferring":
            self.life.cut(request.key)
        elif state in IN_FLIGHT:
            self.life.lose_anchor(request.key)
        if self.life.state(request.key) not in IN_FLIGHT:
            self.life.shrink(request.key)

    def decode(self) -> None:
        """Compute what a request lacks, then one token of output; whoever is done leaves its pages behind."""
        for request in [one for one in self.running if self.pools.ready(one.key)]:
            block, new = self.pools.seated(request.key).full, request.tokens[request.known :]
            self.put(block, request.known, kv_rows(new, request.known))
            self.counts["computed"] += len(new)
            request.known = len(request.tokens)
            if request.known < request.length:
                request.tokens.append(sum(request.tokens) % 97)
                continue
            if not torch.equal(self.pools.device.load("kv", block).cpu(), kv_rows(request.tokens)):
                raise AssertionError(f"{request.rid} ran on KV rows that are not its own")
            names = page_names(request.tokens)
            if names and names not in self.nodes.values():
                self.pools.plant(request.key, names[-1], names)
                self.nodes[names[-1]] = names
            self.say(f"{request.rid}: finished, {len(names)} pages stay on the device")
            self.counts["finished"] += 1
            self.leave(request)

    def put(self, block: Block, start: int, rows: torch.Tensor) -> None:
        """Write rows into the slots of a seat, from token `start` on."""
        kv = self.pools.device.rows["kv"]
        kv[block.slots[start : start + len(rows)]] = rows.to(kv.device)

    def tell(self, request: Request) -> None:
        """Say what became of the request's fetch since the last pass."""
        before, request.state = request.state, self.life.state(request.key)
        if request.state != before:
            why = f" ({self.life.reason(request.key)})" if request.state in ("missed", "pending") else ""
            self.say(f"{request.rid}: {request.state}{why}")

    def leave(self, request: Request) -> None:
        """A running request is over."""
        self.life.finish(request.key)
        self.pools.unseat(request.key)
        self.running.remove(request)

    def retract(self, request: Request) -> None:
        """A running request makes room, and is queued again with the output it has."""
        self.say(f"{request.rid}: retracted with {len(request.tokens)} tokens")
        self.pools.unseat(request.key)
        self.running.remove(request)
        key = self.life.retract(request.key)
        request.key, request.node, request.shared, request.known = key, "", 0, 0
        request.waited, request.state, request.retracted = 0, "queued", True
        self.waiting.append(request)
        self.counts["retracted"] += 1
        self.ask(request)

    def close(self) -> list[str]:
        """Drop all nodes; what is left then or wrong, one line each."""
        for _ in range(3):
            self.pools.drain(wait=True)
            self.life.begin_pass()
        for node in self.nodes:
            self.life.evict(node)
        wrong = self.pools.disagreements(self.life) + ["slots are left"] * (not self.pools.empty)
        self.pools.close()
        return wrong


def play(
    say: Callable[[str], None], store: Store | None = None, *, device: str = "cpu", paced: bool = True
) -> Counter[str]:
    """Three conversations of three turns on a device too small for all of them; one client goes away.

    Raises AssertionError for a KV row that is not the right one, or anything that is left.
    """
    scheduler = Scheduler(MemoryStore() if store is None else store, say, device=device, paced=paced)
    system = [7 * number % 89 for number in range(24)]
    talks = {name: system + [place * 11 + 3] * 16 for place, name in enumerate("abc", 1)}
    for turn in range(3):
        for name, prompt in talks.items():
            scheduler.submit(f"{name}{turn}", prompt, new=24 if name == "b" else 8)
        if turn == 1:
            scheduler.step()
            scheduler.abort("b1")
        while scheduler.waiting or scheduler.running:
            scheduler.step()
        talks = {name: prompt + [len(prompt) % 83] * 16 for name, prompt in talks.items()}
    if wrong := scheduler.close():
        raise AssertionError("\n".join(wrong))
    return scheduler.counts


def main() -> None:
    """Print the account: a pass number before the passes in which something happened."""
    heading = ""

    def say(line: str) -> None:
        nonlocal heading
        if line.startswith("pass "):
            heading = line
            return
        print(f"{heading:<9} {line}")
        heading = ""

    counts = play(say, device=sys.argv[1] if len(sys.argv) > 1 else "cpu")
    whole = counts["device"] + counts["storage"] + counts["computed"]
    print(
        f"\n{counts['finished']} requests finished, {counts['retracted']} retracted; KV rows of {whole} tokens:"
    )
    for where in ("computed", "device", "storage"):
        print(f"  {counts[where]:5d}  {where}")
    print("each row was the right one; every slot, page and pin went back")


if __name__ == "__main__":
    main()
