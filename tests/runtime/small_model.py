"""Attempts, operations and pools by the sentences of the design; shares no code with the runtime."""

from dataclasses import dataclass, field

from hicache_fsm.runtime import AttemptKey

INTERVAL, BUDGET, PAGE, HOST_PAGES, CAP, ANCHOR = 2, 1, 16, 8, 150, 64
WANTED = 96
ASKING = ("probing", "retrying")


@dataclass
class Model:
    """One attempt by the sentences of the design, profile `recommended`."""

    state: str = "queued"
    spent: int = 0
    op: int = 0
    immediate: bool = False
    partial: bool = False
    swept: int = 0
    offered: bool = False
    hold: int = 0
    pin: str = ""
    anchored: bool = False

    def __setattr__(self, name: str, value: object) -> None:
        if name == "state":
            super().__setattr__("offered", False)
        super().__setattr__(name, value)


@dataclass
class World:
    """The queue, the operations and the pools."""

    now: int = 0
    queue: dict[AttemptKey, Model] = field(default_factory=dict)
    running: dict[AttemptKey, Model] = field(default_factory=dict)
    owner: dict[int, AttemptKey | None] = field(default_factory=dict)
    pages: dict[int, int] = field(default_factory=dict)
    attached: bool = True

    def occupied(self) -> int:
        return sum(self.pages.values()) + sum(one.hold for one in self.queue.values())

    def pinned(self) -> int:
        return ANCHOR * sum(one.pin == "held" for one in self.queue.values())

    def ask(self, key: AttemptKey, op: int, state: str) -> None:
        one = self.queue[key]
        one.state, one.op, one.immediate, one.partial, one.anchored = state, op, False, False, True
        self.owner[op] = key
        self.pages[op] = 0
        self.try_pin(one)

    def try_pin(self, one: Model) -> None:
        if one.anchored and one.pin in ("", "capped"):
            one.pin = "held" if self.pinned() + ANCHOR <= CAP else "capped"

    def miss(self, one: Model, immediate: bool = False) -> None:
        one.state, one.immediate = "missed", immediate

    def end(self, one: Model) -> None:
        self.over(one.op)
        one.op = 0

    def over(self, op: int) -> None:
        if op:
            del self.owner[op], self.pages[op]

    def orphan(self, one: Model) -> None:
        if one.op and one.state == "parked":
            self.end(one)
        elif one.op:
            self.owner[one.op] = None
            one.op = 0

    def start_over(self) -> None:
        for one in self.queue.values():
            self.orphan(one)
            one.state, one.hold, one.pin = "queued", 0, ""

    def answer_legal(self, op: int, event: str) -> bool:
        if op not in self.owner:
            return False
        key = self.owner[op]
        if key is None:
            return True
        return self.queue[key].state in (ASKING if event in ("hit", "miss") else ("transferring",))

    def answer(self, op: int, event: str, stored: int) -> None:
        key = self.owner[op]
        if key is None:
            self.over(op)
            return
        one = self.queue[key]
        if event == "hit":
            self.hit(one, stored)
        elif event == "miss" or event == "fail":
            self.end(one)
            one.pin = ""
            self.miss(one)
        else:
            one.hold += self.pages[op]
            self.end(one)
            if one.partial and one.spent < BUDGET:
                self.miss(one)
            else:
                one.state = "loaded"

    def hit(self, one: Model, stored: int) -> None:
        if self.occupied() + stored // PAGE > HOST_PAGES:
            if one.hold:
                self.end(one)
                one.pin = ""
                self.miss(one)
            else:
                one.state = "parked"
                one.pin = "" if one.pin == "held" else one.pin
            return
        self.try_pin(one)
        one.state, one.partial = "transferring", stored < WANTED
        self.pages[one.op] = stored // PAGE

    def sweep(self) -> list[AttemptKey]:
        offers = []
        for place, (key, one) in enumerate(self.queue.items()):
            one.offered = False
            if one.state not in ("missed", "pending"):
                continue
            due = one.state == "pending" and self.now - one.swept >= INTERVAL
            if place == 0 and not one.immediate:
                one.state = "queued"
            elif one.state == "missed" and one.spent >= BUDGET:
                one.state = "exhausted"
            elif one.immediate or due:
                one.offered = True
                offers.append(key)
            elif one.state == "missed":
                one.state, one.swept = "pending", self.now
        return offers
