"""Random lives against a small model of the design's sentences that shares no code with the runtime.

Their logs are judged by replay, too.
"""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from small_model import ANCHOR, ASKING, BUDGET, CAP, HOST_PAGES, INTERVAL, PAGE, WANTED, Model, World

from hicache_fsm.replay import judge
from hicache_fsm.runtime import (
    Anchor,
    AttemptKey,
    Completion,
    EventLog,
    HiCacheLifecycle,
    IllegalTransition,
    read_log,
)
from hicache_fsm.spec import Transition, load_spec

SPEC = load_spec()
WEIGHTS = {
    "enqueue": 5,
    "issue": 6,
    "answer": 8,
    "passes": 6,
    "lose_match": 2,
    "answer_anything": 1,
    "stop": 2,
    "lose": 2,
    "unpark": 2,
    "leave": 2,
    "leave_batch": 2,
    "evict": 1,
    "reset": 1,
}
"""How often each action comes up; one rule draws them all, as Hypothesis would switch rules off by whole
runs.
"""
WAITING = ("queued", "missed", "pending", "exhausted", "loaded")


class Lives(RuleBasedStateMachine):
    """Every event at any time: what the model calls legal must happen, all else must raise."""

    reached: ClassVar[Counter[tuple[str, str, str]]] = Counter()

    @initialize()
    def start(self) -> None:
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name, "log.jsonl")
        self.life = HiCacheLifecycle(
            "recommended",
            pool_tokens=2 * CAP,
            max_context_len=CAP - PAGE,
            host_tokens=HOST_PAGES * PAGE,
            page_size=PAGE,
            interval=INTERVAL,
            max_attempts=BUDGET,
            monitor=True,
            log=EventLog(self.path),
            spec=SPEC,
        )
        assert self.life.settings.pin_cap == CAP
        self.watch()
        self.world = World()
        self.keys: list[AttemptKey] = []
        self.ops: list[int] = []
        self.posted: list[tuple[int, str, int]] = []
        self.stored: dict[int, int] = {}
        self.numbers: dict[str, int] = {}

    def watch(self) -> None:
        monitor = self.life.monitor
        assert monitor is not None
        step = monitor.step

        def count(now: int, key: AttemptKey, row: Transition, op: int, pages: int) -> None:
            self.reached[row.source, row.event, row.dest] += 1
            step(now, key, row, op, pages)

        monitor.step = count  # type: ignore[method-assign,assignment]

    def expect(self, legal: bool, call: Any, *arguments: Any, **options: Any) -> Any:
        if legal:
            return call(*arguments, **options)
        with pytest.raises(IllegalTransition):
            call(*arguments, **options)
        return None

    def pick(self, data: st.DataObject) -> tuple[AttemptKey, Model | None]:
        """An attempt, nearly always a waiting one."""
        live = list(self.world.queue)
        stray = not live or data.draw(st.integers(0, 15)) == 15
        key = data.draw(st.sampled_from(self.keys[-8:] if stray else live))
        return key, self.world.queue.get(key)

    def rarely(self, data: st.DataObject, one_in: int) -> bool:
        return data.draw(st.integers(1, one_in)) == one_in

    def enqueue(self, data: st.DataObject) -> None:
        rid = data.draw(st.sampled_from("abcd"))
        free = not any(key.rid == rid for key in (*self.world.queue, *self.world.running))
        key = self.expect(free, self.life.enqueue, rid, WANTED)
        if free:
            assert key == (rid, self.numbers.get(rid, 0))
            self.started(key, Model())

    def started(self, key: AttemptKey, one: Model) -> None:
        self.numbers[key.rid] = key.attempt + 1
        self.world.queue[key] = one
        self.keys.append(key)

    def issue(self, data: st.DataObject) -> None:
        key, one = self.pick(data)
        self.put_question(key, one, asks=not self.rarely(data, 6))

    def put_question(self, key: AttemptKey, one: Model | None, asks: bool) -> None:
        again = one is not None and one.offered and one.state in ("missed", "pending")
        legal = one is not None and (again or one.state == "queued")
        asks = asks and self.world.attached
        op = self.expect(
            legal,
            self.life.issue,
            key,
            asks=asks,
            why="" if asks else "too_short",
            anchor=Anchor(f"node {key.rid}", ANCHOR),
        )
        if one is None or not legal:
            return
        if asks:
            self.issued(op)
            one.spent += again
            self.world.ask(key, op, "retrying" if again else "probing")
        else:
            one.state = "queued"

    def issued(self, op: int) -> None:
        assert op == len(self.ops) + 1
        self.ops.append(op)

    def lose_match(self, data: st.DataObject) -> None:
        key, one = self.pick(data)
        if one is not None and not self.world.attached:
            assert self.life.lose_match(key) is None
            return
        legal = one is not None and one.state in ("queued", "missed", "pending", "loaded")
        op = self.expect(legal, self.life.lose_match, key, anchor=Anchor(f"node {key.rid}", ANCHOR))
        if one is None or not legal:
            return
        if one.spent < BUDGET:
            self.issued(op)
            one.spent += 1
            self.world.ask(key, op, "retrying")
        else:
            assert op is None
            one.state = "exhausted"

    def answer(self, data: st.DataObject) -> None:
        """What storage owes a waiting attempt or an orphan."""
        owed = [
            op
            for op, key in self.world.owner.items()
            if key is None or self.world.queue[key].state != "parked"
        ]
        if owed:
            op = data.draw(st.sampled_from(owed))
            key = self.world.owner[op]
            asking = key is None or self.world.queue[key].state in ASKING
            event = data.draw(st.sampled_from(["hit", "hit", "miss"] if asking else ["done", "done", "fail"]))
            late = data.draw(st.booleans()) and all(op != other for other, *_ in self.posted)
            self.give(op, event, data.draw(st.sampled_from([WANTED, 32])), late)

    def answer_anything(self, data: st.DataObject) -> None:
        if self.ops:
            op = data.draw(st.sampled_from(self.ops[-8:]))
            event = data.draw(st.sampled_from(["hit", "miss", "done", "fail"]))
            self.give(op, event, WANTED, self.rarely(data, 4))

    def give(self, op: int, event: str, stored: int, late: bool) -> None:
        if late:
            self.life.post(Completion(op, event, stored if event == "hit" else 0, WANTED))  # type: ignore[arg-type]
            self.posted.append((op, event, stored))
            return
        legal = self.world.answer_legal(op, event)
        key = self.world.owner.get(op) or AttemptKey("?", 0)
        call = {
            "hit": lambda: self.life.hit(key, op, stored, WANTED),
            "miss": lambda: self.life.missed(key, op),
            "done": lambda: self.life.loaded(key, op),
            "fail": lambda: self.life.failed(key, op),
        }[event]
        self.expect(legal, call)
        if legal:
            self.answered(op, event, stored)

    def answered(self, op: int, event: str, stored: int) -> None:
        if event == "hit":
            self.stored[op] = stored
        self.world.answer(op, event, stored)

    def passes(self, data: st.DataObject) -> None:
        if not self.world.attached:
            self.reset(data)
        for _ in range(data.draw(st.integers(1, 3))):
            self.begin_pass()
        if data.draw(st.booleans()):
            for key, one in list(self.world.queue.items()):
                if one.offered and one.state in ("missed", "pending"):
                    self.put_question(key, one, asks=True)

    def begin_pass(self) -> None:
        self.world.now += 1
        while self.posted:
            answer = self.posted.pop(0)
            if not self.world.answer_legal(*answer[:2]):
                with pytest.raises(IllegalTransition):
                    self.life.begin_pass()
                return
            self.answered(*answer)
        assert self.life.begin_pass() == self.world.sweep()

    def stop(self, data: st.DataObject) -> None:
        event, read = data.draw(st.sampled_from(["cut", "expire"])), data.draw(st.sampled_from([0, 32]))
        key, one = self.pick(data)
        legal = one is not None and one.state in (*ASKING, "parked", "transferring")
        read = read if one is not None and one.state == "transferring" else 0
        self.expect(legal, getattr(self.life, event), key, read)
        if one is None or not legal:
            return
        if one.state == "transferring":
            self.world.pages[one.op] -= read // PAGE
            one.hold += read // PAGE
            self.world.orphan(one)
            one.state = "loaded"
            return
        self.world.orphan(one)
        one.pin = ""
        if event == "cut":
            self.world.miss(one)
        else:
            one.state = "exhausted"

    def lose(self, data: st.DataObject) -> None:
        key, one = self.pick(data)
        usual = (
            ["shrink", "revoke"] if one is not None and one.state in WAITING else ["lose_anchor", "revoke"]
        )
        event = data.draw(
            st.sampled_from(usual if not self.rarely(data, 4) else ["lose_anchor", "revoke", "shrink"])
        )
        undecided = (*ASKING, "parked")
        where = {"shrink": WAITING, "revoke": (*undecided, "loaded"), "lose_anchor": undecided}[event]
        legal = one is not None and one.state in where
        self.expect(legal, getattr(self.life, event), key)
        if one is None or not legal:
            return
        if one.state in WAITING:
            one.hold = 0
        else:
            self.world.end(one)
        if event == "shrink" and one.state != "loaded":
            return
        one.pin = ""
        if event == "revoke":
            one.state = "queued"
        else:
            self.world.miss(one, immediate=True)

    def unpark(self, data: st.DataObject) -> None:
        parked = [key for key, one in self.world.queue.items() if one.state == "parked"]
        if not parked:
            return
        key = data.draw(st.sampled_from(parked))
        one = self.world.queue[key]
        self.world.hit(one, self.stored[one.op])
        assert self.life.unparked(key) == (one.state == "transferring")

    def leave(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(["admit", "abort", "abandon"]))
        key, one = self.pick(data)
        legal = one is not None and (event != "admit" or one.state in WAITING)
        tokens = self.expect(legal, getattr(self.life, event), key)
        if one is None or not legal:
            return
        self.world.orphan(one)
        del self.world.queue[key]
        if event == "admit":
            assert tokens == one.hold * PAGE
            self.world.running[key] = one

    def leave_batch(self, data: st.DataObject) -> None:
        again = data.draw(st.booleans())
        running = list(self.world.running)
        key = data.draw(st.sampled_from(running)) if running else self.pick(data)[0]
        legal = key in self.world.running
        result = self.expect(legal, self.life.retract if again else self.life.finish, key)
        if not legal:
            return
        del self.world.running[key]
        if again:
            assert result == (key.rid, key.attempt + 1)
            self.started(result, Model())

    def evict(self, data: st.DataObject) -> None:
        key, one = self.pick(data)
        key = next((other for other in self.world.queue if other.rid == key.rid), key)
        one = self.world.queue.get(key)
        legal = one is None or one.pin != "held"
        losers = self.expect(legal, self.life.evict, f"node {key.rid}")
        if legal and one is not None and one.pin:
            assert losers == [key]
            one.pin = "lost"

    def reset(self, data: st.DataObject) -> None:
        if not self.world.attached:
            self.life.attach()
            self.world.attached = True
            return
        event = data.draw(st.sampled_from(["flush", "detach"]))
        getattr(self.life, event)()
        self.world.start_over()
        self.world.attached = event == "flush"

    @rule(
        data=st.data(),
        action=st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)]),
    )
    def live(self, data: st.DataObject, action: str) -> None:
        if self.keys or action == "passes":
            getattr(self, action)(data)
        else:
            self.enqueue(data)

    def teardown(self) -> None:
        if not hasattr(self, "life"):
            return
        self.life.close()
        lines = (line for line in read_log(self.path, spec=SPEC) if not line.data.get("illegal"))
        violations = judge(SPEC, lines, str(self.path)).violations
        self.folder.cleanup()
        assert violations == []

    @invariant()
    def same(self) -> None:
        life, world = self.life, self.world
        assert life.now == world.now
        assert life.waiting == len(world.queue)
        for key, one in world.queue.items():
            assert (life.state(key), life.spent(key), life.operation(key) or 0) == (
                one.state,
                one.spent,
                one.op,
            )
        assert life.occupied_tokens == world.occupied() * PAGE
        assert life.pinned_tokens == world.pinned()
        assert life.orphans == sorted(op for op, key in world.owner.items() if key is None)
        assert life.check() == []


def test_random_lives_agree_with_the_model_and_take_nearly_every_edge() -> None:
    Lives.reached.clear()
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=120,
            derandomize=True,
            database=None,
            stateful_step_count=100,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )
    edges = {(t.source, t.event, t.dest) for t in SPEC.machines["prefetch"].transitions}
    assert {dest for _, _, dest in Lives.reached} == {dest for _, _, dest in edges}
    assert len(edges & set(Lives.reached)) >= 55
