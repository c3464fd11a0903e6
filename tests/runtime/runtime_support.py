"""Small builders that the runtime's tests share."""

from collections.abc import Callable
from typing import Any

from hicache_fsm.runtime import Anchor, AttemptKey, HiCacheLifecycle, NullExecutor, Undo
from hicache_fsm.spec import Profile, load_spec, set_constant
from hicache_fsm.spec.types import Constant

SPEC = load_spec()
PAGE = 16
ANCHOR = Anchor("node", 64)


def changed(profile: str, **constants: Constant) -> Profile:
    """A profile with other constants."""
    return set_constant(SPEC, profile, **constants).profiles[profile]


def lifecycle(profile: str | Profile = "recommended", **options: Any) -> HiCacheLifecycle:
    """Pools of 2,048 device and 1,024 host tokens, pages of 16 tokens, cap 1,024, interval 2."""
    settings: dict[str, Any] = {
        "pool_tokens": 2048,
        "max_context_len": 512,
        "host_tokens": 1024,
        "page_size": PAGE,
        "interval": 2,
        "monitor": True,
        "spec": SPEC,
    }
    return HiCacheLifecycle(profile, **(settings | options))


def behind_a_head(life: HiCacheLifecycle, rid: str = "r", tokens: int = 96) -> AttemptKey:
    """An attempt that is not the head of the queue, so that the head rule leaves it alone."""
    life.enqueue("head", 96)
    return life.enqueue(rid, tokens)


def asked(life: HiCacheLifecycle, key: AttemptKey, anchor: Anchor | None = ANCHOR) -> int:
    """Ask the attempt's question, and give the operation's number."""
    op = life.issue(key, anchor=anchor)
    assert op is not None
    return op


def transferring(life: HiCacheLifecycle, key: AttemptKey, stored: int = 96, wanted: int = 96) -> int:
    """Ask and hit: the operation is filling host pages."""
    op = asked(life, key)
    assert life.hit(key, op, stored, wanted)
    return op


def loaded(life: HiCacheLifecycle, key: AttemptKey) -> int:
    """Ask, hit and load."""
    op = transferring(life, key)
    assert life.loaded(key, op)
    return op


def passes_until_offered(life: HiCacheLifecycle, key: AttemptKey, limit: int = 50) -> int:
    """How many passes it takes until the attempt is to be asked again."""
    for count in range(1, limit):
        if key in life.begin_pass():
            return count
    raise AssertionError(f"{key} was not offered within {limit} passes")


class Pools(NullExecutor):
    """Counts what is acquired, by owner, and fails on demand before or after an effect has acted."""

    def __init__(self) -> None:
        self.pages: dict[object, int] = {}
        self.locks: dict[object, int] = {}
        self.questions: set[int] = set()
        self.writes: set[object] = set()
        self.claims: set[object] = set()
        self.fail_before = ""
        self.fail_after = ""

    def snapshot(self) -> tuple[object, ...]:
        return (
            {k: v for k, v in self.pages.items() if v},
            dict(self.locks),
            set(self.questions),
            set(self.writes),
            set(self.claims),
        )

    def _act(self, name: str, action: Callable[[], object]) -> None:
        if self.fail_before == name:
            raise MemoryError(f"before {name}")
        action()
        if self.fail_after == name:
            raise MemoryError(f"after {name}")

    def _move(self, source: object, dest: object, pages: int | None = None) -> None:
        owned = self.pages.get(source, 0)
        moved = owned if pages is None else min(pages, owned)
        self.pages[source] = owned - moved
        if dest is not None:
            self.pages[dest] = self.pages.get(dest, 0) + moved

    def ask(self, key: AttemptKey, op: int, tokens: int, undo: Undo) -> None:
        undo(lambda: self.questions.discard(op))
        self._act("ask", lambda: self.questions.add(op))

    def take_pages(self, key: AttemptKey, op: int, pages: int, undo: Undo) -> None:
        undo(lambda: self._move(op, None))
        self._act("take_pages", lambda: self.pages.__setitem__(op, pages))

    def end_operation(self, key: AttemptKey, op: int) -> None:
        self._act("end_operation", lambda: self.questions.discard(op))

    def stage_hold(self, key: AttemptKey, op: int, pages: int) -> None:
        def stage() -> None:
            self._move(op, key, pages)
            self._move(op, None)
            self.questions.discard(op)

        self._act("stage_hold", stage)

    def free_pages(self, key: AttemptKey, op: int) -> None:
        self._act("free_pages", lambda: (self._move(op, None), self.questions.discard(op)))

    def orphan_operation(self, key: AttemptKey, op: int) -> None:
        self._act("orphan_operation", lambda: None)

    def cut_operation(self, key: AttemptKey, op: int, pages: int) -> None:
        self._act("cut_operation", lambda: self._move(op, key, pages))

    def free_orphan_pages(self, op: int) -> None:
        self._act("free_orphan_pages", lambda: (self._move(op, None), self.questions.discard(op)))

    def consume_hold(self, key: AttemptKey, pages: int) -> None:
        self._act("consume_hold", lambda: self._move(key, None))

    def release_hold(self, key: AttemptKey, pages: int) -> None:
        self._act("release_hold", lambda: self._move(key, None))

    def lock_anchor(self, key: AttemptKey, node: object, tokens: int, undo: Undo) -> None:
        undo(lambda: self.locks.pop(key, None))
        self._act("lock_anchor", lambda: self.locks.__setitem__(key, tokens))

    def unlock_anchor(self, key: AttemptKey, node: object, tokens: int) -> None:
        self._act("unlock_anchor", lambda: self.locks.pop(key, None))

    def launch_write(self, pool: str, pages: Any, undo: Undo) -> None:
        undo(lambda: self.writes.difference_update(pages))
        self._act("launch_write", lambda: self.writes.update(pages))

    def settle_write(self, pool: str, pages: Any) -> None:
        self._act("settle_write", lambda: self.writes.difference_update(pages))

    def claim(self, node: object, owner: object, undo: Undo) -> None:
        undo(lambda: self.claims.discard(node))
        self._act("claim", lambda: self.claims.add(node))

    def unclaim(self, node: object, owner: object) -> None:
        self._act("unclaim", lambda: self.claims.discard(node))
