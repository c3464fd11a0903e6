"""Three conversations of three turns on the example scheduler, whose device is too small for all of them.

python examples/conversations.py            # what happens to each request, the same on every run
python examples/conversations.py cuda       # the pools on a GPU
"""

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from scheduler import Scheduler

from hicache_fsm.executor.embedding import shut_down
from hicache_fsm.executor.stores import MemoryStore, Store
from hicache_fsm.machine import Row
from hicache_fsm.runtime import Listener


class Account(Listener):
    """Tells what happens to each request, a line at a time."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def queued(self, now: int, attempt: Any, again: str) -> None:
        self.tell(f"pass {now:<3} {attempt.key}: queued {again}")

    def stepped(self, now: int, attempt: Any, moment: Any, row: Row, op: Any) -> None:
        change = row.transition
        if change.dest not in ("=", change.source):
            why = f", {moment.why}" * bool(moment.why) + f", {moment.tokens} tokens" * bool(moment.tokens)
            self.tell(f"pass {now:<3} {attempt.key}: {change.event}{why}: {change.dest}")

    def left(self, now: int, attempt: Any, event: str) -> None:
        self.tell(f"pass {now:<3} {attempt.key}: {event}")


def play(
    tell: Callable[[str], None], store: Store | None = None, *, device: str = "cpu", paced: bool = True
) -> Counter[str]:
    """Play to the end; one client goes away.  Returns tokens by where their KV rows came from.

    Raises AssertionError for a row that is not the right one, and for anything that is left.
    """
    scheduler = Scheduler(MemoryStore() if store is None else store, device=device, paced=paced)
    scheduler.life.listen(Account(tell))
    system = [7 * number % 89 for number in range(24)]
    talks = {name: system + [place * 11 + 3] * 16 for place, name in enumerate("abc", 1)}
    for turn in range(3):
        for name, prompt in talks.items():
            scheduler.submit(f"{name}{turn}", prompt, new=21 if name == "b" else 10)
        if turn == 1:
            scheduler.step()
            scheduler.abort("c1")
        while scheduler.waiting or scheduler.running:
            scheduler.step()
        talks = {name: prompt + [len(prompt) % 83] * 16 for name, prompt in talks.items()}
    if left := shut_down(scheduler.life, scheduler.pools):
        raise AssertionError("\n".join(left))
    return scheduler.counts


def main() -> None:
    """Print the account, then where the KV rows came from."""
    counts = play(print, device=sys.argv[1] if len(sys.argv) > 1 else "cpu")
    print(f"\nKV rows of {counts.total()} tokens:")
    for where in ("computed", "device", "storage"):
        print(f"  {counts[where]:5d}  {where}")
    print("each row was the right one; every slot, page and pin went back")


if __name__ == "__main__":
    main()
