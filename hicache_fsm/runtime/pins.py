"""Pins on device anchors: one per holder and node, counted in tokens against a cap."""

from collections.abc import Iterator

from hicache_fsm.machine import CompiledMachine, Row
from hicache_fsm.runtime.attempt import Anchor, Attempt, AttemptKey, Node, Pin, PinPlan
from hicache_fsm.runtime.executor import Executor, Undo
from hicache_fsm.runtime.ledger import Ledger
from hicache_fsm.runtime.nodes import Nodes
from hicache_fsm.spec import Machine


class Pins:
    """Every attempt's pin.  `cap` is in tokens, per holder and not per distinct node."""

    __slots__ = (
        "_anchored",
        "_by_node",
        "_evict",
        "_executor",
        "_fits",
        "_gone",
        "_lapse",
        "_ledger",
        "_nodes",
        "_pin",
        "_unpin",
        "_yield",
        "cap",
        "table",
    )

    def __init__(self, machine: Machine, cap: int, ledger: Ledger, nodes: Nodes, executor: Executor) -> None:
        self.table = CompiledMachine(machine)
        self.cap = cap
        self._ledger = ledger
        self._nodes = nodes
        self._executor = executor
        self._by_node: dict[Node, dict[AttemptKey, Attempt]] = {}
        self._pin, self._unpin, self._yield, self._evict, self._lapse = map(
            self.table.event_ids.__getitem__, ("pin", "unpin", "yield", "evict", "lapse")
        )
        self._anchored, self._fits, self._gone = (
            self.table.mask([guard]) for guard in ("anchored", "fits", "holder_gone")
        )

    def plan(self, attempt: Attempt, anchor: Anchor, undo: Undo) -> PinPlan | None:
        """Pin `anchor` as far as the cap allows, which may raise; None if it may not be asked for.

        A second call by the same holder changes nothing (#36227: the pin at hit time is an idempotent second
        chance).
        """
        pin = attempt.pin
        if pin is None or (pin.node != anchor.node and not pin.held):
            pin = Pin(attempt.key, anchor.node, anchor.tokens, self.table.initial)
        anchored = anchor.on_device and (pin.held or self._nodes.pinnable(anchor.node))
        truth = (self._anchored if anchored else 0) | (self._fits if self._fit(anchor.tokens) else 0)
        row = self.table.decide(pin.state, self._pin, truth)
        if row is None:
            return None
        if "lock_anchor" in row.transition.effects:
            self._executor.lock_anchor(attempt.key, anchor.node, anchor.tokens, undo)
        return PinPlan(attempt, anchor, pin, row, anchored, self._verdict(pin, anchor, row))

    def commit(self, plan: PinPlan) -> None:
        """Enter a planned pin into the ledger."""
        attempt, pin, row = plan.attempt, plan.pin, plan.row
        if attempt.pin is not pin:
            self._enter(attempt, pin)
        pin.state = row.dest
        if "lock_anchor" in row.transition.effects:
            pin.held = True
            pin.tokens = plan.anchor.tokens
            self._ledger.pinned_tokens += pin.tokens
            self._nodes.change("pin", pin.node)

    def hang(self, attempt: Attempt, anchor: Anchor) -> None:
        """The attempt's span hangs on `anchor`, which is not pinned yet: its eviction is to be known."""
        if attempt.pin is None or (attempt.pin.node != anchor.node and not attempt.pin.held):
            self._enter(attempt, Pin(attempt.key, anchor.node, anchor.tokens, self.table.initial))

    def unlock(self, attempt: Attempt) -> None:
        """Run the effect of an unpin, which may raise."""
        pin = attempt.pin
        if pin is not None and pin.held and self._unlocks(pin, self._unpin):
            self._executor.unlock_anchor(pin.key, pin.node, pin.tokens)

    def commit_unpin(self, attempt: Attempt) -> int | None:
        """Take the attempt's pin out of the ledger.  Returns the tokens given back, None if it was not held."""
        return self._release(attempt, self._unpin)

    def unlock_for_now(self, attempt: Attempt) -> None:
        """Run the effect of a yield, which may raise."""
        pin = attempt.pin
        if pin is not None and pin.held and self._unlocks(pin, self._yield):
            self._executor.unlock_anchor(pin.key, pin.node, pin.tokens)

    def commit_yield(self, attempt: Attempt) -> int | None:
        """Give the pin back and go on hanging on its node.  Returns as `commit_unpin`."""
        pin = attempt.pin
        row = self.table.decide(pin.state, self._yield) if pin is not None else None
        if pin is None or row is None:
            return None
        tokens = self._give_back(pin, self._yield)
        pin.state = row.dest
        return tokens

    def lapse(self, attempt: Attempt) -> int | None:
        """Release the pin of a holder that is gone, and only that holder's. Returns as `commit_unpin`."""
        pin = attempt.pin
        if pin is None or not pin.held or not self._unlocks(pin, self._lapse):
            return None
        self._executor.unlock_anchor(pin.key, pin.node, pin.tokens)
        return self._release(attempt, self._lapse)

    def verdict(self, tokens: int) -> str:
        """The answer to a pin of so many tokens: locked, cap_busy, or cap_skip if it can never fit."""
        if self._fit(tokens):
            return "locked"
        return "cap_skip" if tokens > self.cap else "cap_busy"

    def lose(self, node: Node) -> list[Attempt]:
        """The node left the device: the attempts that hang on it, in queue order, whose pin is lost."""
        losers = []
        for attempt in self._by_node.get(node, {}).values():
            pin = attempt.pin
            row = self.table.decide(pin.state, self._evict) if pin is not None else None
            if pin is not None and row is not None:
                pin.state = row.dest
                losers.append(attempt)
        return sorted(losers, key=lambda attempt: attempt.order)

    def holders(self) -> Iterator[Pin]:
        """Every pin in the ledger, held or not."""
        for attempts in self._by_node.values():
            yield from (attempt.pin for attempt in attempts.values() if attempt.pin is not None)

    def _fit(self, tokens: int) -> bool:
        return self._ledger.pinned_tokens + tokens <= self.cap

    def _unlocks(self, pin: Pin, event: int) -> bool:
        row = self.table.decide(pin.state, event, self._gone)
        return row is not None and "unlock_anchor" in row.transition.effects

    def _release(self, attempt: Attempt, event: int) -> int | None:
        pin = attempt.pin
        if pin is None:
            return None
        tokens = self._give_back(pin, event)
        self._forget(attempt)
        attempt.pin = None
        return tokens

    def _give_back(self, pin: Pin, event: int) -> int | None:
        if not (pin.held and self._unlocks(pin, event)):
            return None
        self._ledger.pinned_tokens -= pin.tokens
        pin.held = False
        self._nodes.change("unpin", pin.node)
        return pin.tokens

    def _enter(self, attempt: Attempt, pin: Pin) -> None:
        self._forget(attempt)
        attempt.pin = pin
        self._by_node.setdefault(pin.node, {})[attempt.key] = attempt

    def _forget(self, attempt: Attempt) -> None:
        pin = attempt.pin
        if pin is None:
            return
        holders = self._by_node.get(pin.node)
        if holders is not None:
            holders.pop(attempt.key, None)
            if not holders:
                del self._by_node[pin.node]

    def _verdict(self, pin: Pin, anchor: Anchor, row: Row) -> str:
        match self.table.states[row.dest]:
            case "pinned":
                return "held" if pin.held else "locked"
            case "capped":
                return "cap_skip" if anchor.tokens > self.cap else "cap_busy"
            case _:
                return "anchor_lost"
