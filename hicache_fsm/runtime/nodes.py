"""Nodes of the radix tree, as far as pins and load-backs are concerned."""

from collections.abc import Hashable
from dataclasses import dataclass

from hicache_fsm.machine import CompiledMachine, Row
from hicache_fsm.runtime.attempt import Node
from hicache_fsm.runtime.executor import Executor, Rollback
from hicache_fsm.runtime.journal import Journal
from hicache_fsm.spec import Machine


@dataclass(slots=True)
class Standing:
    """One node's state, how many hold it, and the load-back that has claimed it."""

    state: int
    holders: int = 0
    owner: Hashable = None


class Nodes:
    """Runs the node machine for the nodes that are held, loading or tombstoned.

    No other node is kept: one that is asked about first is taken for resident, or for evicted if it is to be
    loaded.
    """

    def __init__(self, machine: Machine, journal: Journal, executor: Executor, rollback: Rollback) -> None:
        self.table = CompiledMachine(machine)
        self._journal = journal
        self._executor = executor
        self._rollback = rollback
        self._nodes: dict[Node, Standing] = {}
        self._evicted = self.table.state_ids["evicted"]
        self._resident = self.table.state_ids["resident"]
        self._masks = {name: self.table.mask([name]) for name in self.table.guards}

    def state(self, node: Node) -> str:
        """The node machine's state, resident for a node that is not kept."""
        standing = self._nodes.get(node)
        return self.table.states[self._resident if standing is None else standing.state]

    def change(self, event: str, node: Node, owner: Hashable = None, tokens: int = 0) -> bool | None:
        """Take an event: True if it did something, False if it was refused, None if it is illegal now.

        `owner` is the load-back of load and loaded.  Raises what an effect raises, and changes nothing then.
        """
        standing = self._nodes.get(node)
        if standing is None:
            standing = Standing(self._evicted if event == "load" else self._resident)
        truth = (
            self._masks["unclaimed"] * (standing.owner is None)
            | self._masks["owner"] * (standing.owner == owner)
            | self._masks["last_holder"] * (standing.holders == 1)
        )
        row = self.table.decide(standing.state, self.table.event_ids[event], truth)
        if row is None:
            return None
        self._run(row, node, owner)
        self._book(row, node, standing, owner)
        if event != "pin" and event != "unpin":
            self._journal.node(event, node, tokens)
        if self._journal.monitor is not None:
            self._journal.monitor.node(self._journal.now, node, row.transition.effects, owner)
        return bool(row.transition.effects)

    def pinnable(self, node: Node) -> bool:
        """Whether a holder may lock the node now: not while it is loaded, nor without its SWA side."""
        standing = self._nodes.get(node)
        return standing is None or self.table.decide(standing.state, self.table.event_ids["pin"]) is not None

    def explain(self, event: str, node: Node) -> str:
        """Why the event is illegal now."""
        standing = self._nodes.get(node)
        state = self._resident if standing is None else standing.state
        return self.table.explain_illegal(state, self.table.event_ids[event])

    def _run(self, row: Row, node: Node, owner: Hashable) -> None:
        with self._rollback:
            for effect in row.transition.effects:
                match effect:
                    case "claim":
                        self._executor.claim(node, owner, self._rollback.undo)
                    case "unclaim":
                        self._executor.unclaim(node, owner)
                    case "free_swa":
                        self._executor.free_swa(node)
                    case "free_both":
                        self._executor.free_both(node)
                    case "free_full":
                        self._executor.free_full(node)

    def _book(self, row: Row, node: Node, standing: Standing, owner: Hashable) -> None:
        for effect in row.transition.effects:
            match effect:
                case "count_holder":
                    standing.holders += 1
                case "drop_holder":
                    standing.holders -= 1
                case "claim":
                    standing.owner = owner
                case "unclaim":
                    standing.owner = None
        standing.state = row.dest
        if row.dest in (self._evicted, self._resident):
            self._nodes.pop(node, None)
        else:
            self._nodes[node] = standing
