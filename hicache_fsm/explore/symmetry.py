"""Interchangeable instances: of states that differ in which is which, one is searched for all.

Two instances are interchangeable if exchanging their names takes the steps, the checks and the initial state to
themselves.  That is not assumed but found out, on the expressions, up to the order of operands; so a system whose
instances have an order, as requests have in the queue, has none that are.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from math import factorial, prod
from typing import Final

import numpy as np

from hicache_fsm.explore.space import Space
from hicache_fsm.model.expr import Expr, walk
from hicache_fsm.model.layout import Column, Layout, Variable, Words
from hicache_fsm.model.system import System

OWNER: Final = re.compile(r"^(?P<before>)(?P<family>[a-z]+)(?P<number>\d+)(?P<after>\..+)$")
"""A variable of an instance: n0.state."""

COLUMN: Final = re.compile(r"^(?P<before>.+\.)(?P<family>[a-z_]+?)(?P<number>\d+)(?P<after>)$")
"""A variable that each instance has for another one: n0.claim1."""

UNORDERED: Final = frozenset({"and", "or", "add", "eq", "min", "max"})
NESTED: Final = frozenset({"and", "or", "add", "min", "max"})

MOST: Final = 120
"""The most orders of columns that are tried for each state."""

Renaming = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Block:
    """Instances that may change places: for each its variables, in the same order."""

    name: str
    instances: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        return f"{len(self.instances)} {self.name}"

    @property
    def size(self) -> int:
        """How many orders they have."""
        return factorial(len(self.instances))


class Symmetry:
    """A system's interchangeable instances, and one state for all that they make of it.

    `owners` own all their variables, so the smallest order of theirs is a sorted one; of `columns`, which run
    across owners, every order is tried.
    """

    def __init__(self, layout: Layout, owners: Sequence[Block], columns: Sequence[Block]) -> None:
        self._layout = layout
        self.owners = tuple(owners)
        self.columns = tuple(columns)

    def __str__(self) -> str:
        return ", ".join(map(str, (*self.owners, *self.columns)))

    def canonical(self, space: Space, keys: Words) -> Words:
        """The keys of the states that stand for those with `keys`."""
        columns = space.columns(keys)
        best: list[Words] | None = None
        for order in self._orders():
            words = self._layout.words_of(self._sorted(self._moved(columns, order)))
            best = words if best is None else _smaller(best, words)
        return keys if best is None else space.keys(best)

    def orbit_sizes(self, space: Space, keys: Words) -> Words:
        """How many states each one stands for: the orders of the instances, less those that change nothing."""
        columns = space.columns(keys)
        first: list[Words] | None = None
        same = np.zeros(keys.size, np.uint64)
        for order in self._orders():
            words = self._layout.words_of(self._sorted(self._moved(columns, order)))
            first = words if first is None else first
            equal = np.all([a == b for a, b in zip(first, words, strict=True)], axis=0)
            same += equal.astype(np.uint64)
        for block in self.owners:
            same *= _repetitions(np.sort(self._packed(block, columns), axis=0))
        return np.uint64(prod(block.size for block in (*self.owners, *self.columns))) // same

    def _orders(self) -> Iterator[Renaming]:
        """Every order of the columns: from each variable to the one whose value it takes."""
        for orders in product(*(permutations(block.instances) for block in self.columns)):
            yield {
                here: there
                for block, order in zip(self.columns, orders, strict=True)
                for mine, others in zip(block.instances, order, strict=True)
                for here, there in zip(mine, others, strict=True)
            }

    def _moved(self, columns: Mapping[str, Column], order: Renaming) -> dict[str, Column]:
        return {name: columns[order.get(name, name)] for name in columns}

    def _sorted(self, columns: dict[str, Column]) -> dict[str, Column]:
        """The owners in the order of what they own."""
        for block in self.owners:
            packed = np.sort(self._packed(block, columns), axis=0)
            for names, rest in zip(block.instances, packed, strict=True):
                for name, each in reversed([*zip(names, self._variables(block), strict=True)]):
                    rest, digit = np.divmod(rest, np.uint64(each.size))
                    columns[name] = digit.astype(np.int8) + np.int8(each.low)
        return columns

    def _packed(self, block: Block, columns: Mapping[str, Column]) -> Words:
        """What each owner owns as one number, a row an owner."""
        packed = np.zeros((len(block.instances), next(iter(columns.values())).size), np.uint64)
        for row, names in enumerate(block.instances):
            for name, each in zip(names, self._variables(block), strict=True):
                digit = (columns[name].astype(np.int64) - each.low).astype(np.uint64)
                packed[row] = packed[row] * np.uint64(each.size) + digit
        return packed

    def _variables(self, block: Block) -> list[Variable]:
        return [self._layout.variables[self._layout.index[name]] for name in block.instances[0]]


def symmetry(system: System) -> Symmetry | None:
    """The interchangeable instances of a system; None if there are none.

    None, too, of a system that judges steps or goals: these tell one instance from another.
    """
    if system.steps or system.goals:
        return None
    owners = _blocks(system, OWNER)
    columns = _blocks(system, COLUMN)
    if prod(block.size for block in columns) > MOST or not (owners or columns):
        return None
    return Symmetry(system.layout, owners, columns)


def _blocks(system: System, form: re.Pattern[str]) -> list[Block]:
    families: dict[str, dict[int, list[str]]] = {}
    for each in system.layout.variables:
        found = form.match(each.name)
        if found is not None:
            families.setdefault(found["family"], {}).setdefault(int(found["number"]), []).append(each.name)
    blocks: list[Block] = []
    seen = _shape(system, lambda name: name)
    for family, members in families.items():
        run: list[tuple[str, ...]] = []
        for number in sorted(members):
            mine = tuple(members[number])
            if not run or not _exchangeable(system, run[-1], mine, seen):
                blocks += [Block(f"{family}", tuple(run))] if len(run) > 1 else []
                run = []
            run.append(mine)
        blocks += [Block(f"{family}", tuple(run))] if len(run) > 1 else []
    return blocks


def _exchangeable(system: System, one: Sequence[str], other: Sequence[str], seen: Hashable) -> bool:
    """Whether exchanging two instances takes the system to itself."""
    if len(one) != len(other):
        return False
    names = {**dict(zip(one, other, strict=True)), **dict(zip(other, one, strict=True))}
    layout = system.layout
    for here, there in names.items():
        a, b = (layout.variables[layout.index[name]] for name in (here, there))
        if (a.low, a.high) != (b.low, b.high) or system.initial[here] != system.initial[there]:
            return False
    return _shape(system, lambda name: names.get(name, name)) == seen


def _shape(system: System, renamed: Callable[[str], str]) -> Hashable:
    """The system's steps and checks with other names, whatever the order of operands, actions and conjuncts."""
    form = _Form(renamed)
    actions = Counter(
        (form.of(a.guard), frozenset((renamed(name), form.of(value)) for name, value in a.updates.items()))
        for a in system.actions
    )
    checks = Counter((check.invariant, form.of(check.holds)) for check in system.states)
    return frozenset(actions.items()), frozenset(checks.items())


class _Form:
    """Expressions as nested values that are equal whatever the order of operands that have none."""

    def __init__(self, renamed: Callable[[str], str]) -> None:
        self._renamed = renamed
        self._known: dict[Expr, tuple[Hashable, ...]] = {}

    def of(self, root: Expr) -> Hashable:
        """The form of one expression."""
        for node in walk([root]):
            if node not in self._known:
                self._known[node] = self._form(node)
        return self._known[root]

    def _form(self, node: Expr) -> tuple[Hashable, ...]:
        if node.op == "var":
            return ("var", self._renamed(str(node.value)))
        if node.op == "const":
            return ("const", node.value, len(node.args))
        parts = [self._known[arg] for arg in node.args]
        if node.op in NESTED:
            flat: Counter[Hashable] = Counter()
            for part in parts:
                inner = part[1] if part[0] == node.op else None
                flat.update(dict(inner) if isinstance(inner, frozenset) else {part: 1})
            return (node.op, frozenset(flat.items()))
        if node.op in UNORDERED:
            return (node.op, frozenset(Counter(parts).items()))
        return (node.op, *parts)


def _smaller(one: list[Words], other: list[Words]) -> list[Words]:
    """For each state the words that come first."""
    less = np.zeros(one[0].shape, np.bool_)
    equal = np.ones(one[0].shape, np.bool_)
    for a, b in zip(one, other, strict=True):
        less |= equal & (b < a)
        equal &= a == b
    return [np.where(less, b, a) for a, b in zip(one, other, strict=True)]


def _repetitions(rows: Words) -> Words:
    """For each state in how many ways equal owners, which lie side by side in sorted rows, can change places."""
    ways = np.ones(rows.shape[1], np.uint64)
    run = np.ones(rows.shape[1], np.uint64)
    for before, row in pairwise(rows):
        run = np.where(row == before, run + np.uint64(1), np.uint64(1))
        ways *= run
    return ways
