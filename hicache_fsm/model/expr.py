"""Symbolic expressions over a system's variables, in eleven operations.

The model is built once from these, and read in several ways: by numpy on whole columns of states, by plain
integers on one state, by a solver.  Numbers are small integers; a flag is a variable that is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

Op = Literal["const", "var", "eq", "le", "and", "or", "not", "add", "sub", "where", "min", "max"]


class Expr:
    """An immutable node; equal nodes hash alike, so that a reader can share their values."""

    __slots__ = ("_hash", "args", "op", "value")

    def __init__(self, op: Op, args: tuple[Expr, ...] = (), value: int | str = 0) -> None:
        self.op = op
        self.args = args
        self.value = value
        self._hash = hash((op, args, value))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Expr)
            and self._hash == other._hash
            and (self.op, self.value, self.args) == (other.op, other.value, other.args)
        )

    def __repr__(self) -> str:
        if self.op in ("const", "var"):
            return str(self.value)
        return f"{self.op}({', '.join(map(repr, self.args))})"

    def __add__(self, other: Expr | int) -> Expr:
        left, right = self, lift(other)
        if left.op == right.op == "const":
            return number(_int(left) + _int(right))
        if right == ZERO:
            return left
        return right if left == ZERO else Expr("add", (left, right))

    def __sub__(self, other: Expr | int) -> Expr:
        left, right = self, lift(other)
        if left.op == right.op == "const":
            return number(_int(left) - _int(right))
        return left if right == ZERO else Expr("sub", (left, right))

    def __and__(self, other: Expr) -> Expr:
        if FALSE in (self, other) or self == ~other:
            return FALSE
        if self in (TRUE, other):
            return other
        return self if other == TRUE else Expr("and", (self, other))

    def __or__(self, other: Expr) -> Expr:
        if TRUE in (self, other) or self == ~other:
            return TRUE
        if self in (FALSE, other):
            return other
        return self if other == FALSE else Expr("or", (self, other))

    def __invert__(self) -> Expr:
        if self == TRUE:
            return FALSE
        if self == FALSE:
            return TRUE
        return self.args[0] if self.op == "not" else Expr("not", (self,))

    def eq(self, other: Expr | int) -> Expr:
        """Whether both are equal."""
        left, right = self, lift(other)
        if left == right:
            return TRUE
        if left.op == right.op == "const":
            return FALSE
        if left.op == "where" and right.op == "const":
            chosen, instead = left.args[1].eq(right), left.args[2].eq(right)
            if chosen.op == "const" or instead.op == "const":
                return (left.args[0] & chosen) | (~left.args[0] & instead)
        return Expr("eq", (left, right))

    def ne(self, other: Expr | int) -> Expr:
        """Whether they differ."""
        return ~self.eq(other)

    def le(self, other: Expr | int) -> Expr:
        """Whether this is at most `other`."""
        left, right = self, lift(other)
        if left.op == right.op == "const":
            return truth(_int(left) <= _int(right))
        return TRUE if left == right else Expr("le", (left, right))

    def ge(self, other: Expr | int) -> Expr:
        """Whether this is at least `other`."""
        return lift(other).le(self)

    def gt(self, other: Expr | int) -> Expr:
        """Whether this is more than `other`."""
        return ~self.le(other)

    def lt(self, other: Expr | int) -> Expr:
        """Whether this is less than `other`."""
        return ~self.ge(other)


def _int(node: Expr) -> int:
    return int(node.value)


def number(value: int) -> Expr:
    """The constant `value`."""
    return Expr("const", (), value)


ZERO = number(0)
TRUE = Expr("const", (ZERO,), 1)
FALSE = Expr("const", (ZERO,), 0)


def truth(value: bool) -> Expr:
    """The constant truth `value`."""
    return TRUE if value else FALSE


def variable(name: str) -> Expr:
    """The variable called `name`."""
    return Expr("var", (), name)


def lift(value: Expr | int) -> Expr:
    """An integer as an expression."""
    return value if isinstance(value, Expr) else number(int(value))


def where(condition: Expr, then: Expr | int, otherwise: Expr | int) -> Expr:
    """`then` if the condition holds, else `otherwise`: both numbers."""
    left, right = lift(then), lift(otherwise)
    if condition == TRUE or left == right:
        return left
    return right if condition == FALSE else Expr("where", (condition, left, right))


def minimum(left: Expr | int, right: Expr | int) -> Expr:
    """The smaller number."""
    a, b = lift(left), lift(right)
    return number(min(_int(a), _int(b))) if a.op == b.op == "const" else Expr("min", (a, b))


def maximum(left: Expr | int, right: Expr | int) -> Expr:
    """The larger number."""
    a, b = lift(left), lift(right)
    return number(max(_int(a), _int(b))) if a.op == b.op == "const" else Expr("max", (a, b))


def flag(condition: Expr) -> Expr:
    """A condition as the number 1 or 0."""
    return where(condition, 1, 0)


def all_of(conditions: Iterable[Expr]) -> Expr:
    """Whether every condition holds."""
    result = TRUE
    for condition in conditions:
        result = result & condition
    return result


def any_of(conditions: Iterable[Expr]) -> Expr:
    """Whether some condition holds."""
    result = FALSE
    for condition in conditions:
        result = result | condition
    return result


def total(numbers: Iterable[Expr | int]) -> Expr:
    """The sum."""
    result = ZERO
    for each in numbers:
        result = result + each
    return result


def one_of(node: Expr, values: Iterable[int]) -> Expr:
    """Whether the number is one of `values`."""
    return any_of(node.eq(value) for value in values)


def walk(roots: Iterable[Expr]) -> Iterator[Expr]:
    """Every node below `roots` once, arguments first."""
    seen: set[Expr] = set()
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, ready = stack.pop()
        if node in seen:
            continue
        if ready or not node.args or node.op == "const":
            seen.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))


def substitute(root: Expr, values: Mapping[str, Expr]) -> Expr:
    """`root` with other expressions in place of its variables."""
    done: dict[Expr, Expr] = {}
    for node in walk([root]):
        args = tuple(done[arg] for arg in node.args) if node.op != "const" else ()
        done[node] = _rebuild(node, args, values)
    return done[root]


def _rebuild(node: Expr, args: tuple[Expr, ...], values: Mapping[str, Expr]) -> Expr:
    match node.op:
        case "const":
            return node
        case "var":
            return values.get(str(node.value), node)
        case "eq":
            return args[0].eq(args[1])
        case "le":
            return args[0].le(args[1])
        case "and":
            return args[0] & args[1]
        case "or":
            return args[0] | args[1]
        case "not":
            return ~args[0]
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "where":
            return where(*args)
        case "min":
            return minimum(*args)
        case "max":
            return maximum(*args)


def evaluate(root: Expr, state: Mapping[str, int]) -> int:
    """The value in one state; a condition is 1 or 0."""
    return values_below(root, state)[root]


def values_below(root: Expr, state: Mapping[str, int]) -> dict[Expr, int]:
    """The values of `root` and of every node below it in one state, arguments first."""
    done: dict[Expr, int] = {}
    for node in walk([root]):
        if node.op == "const":
            done[node] = _int(node)
        elif node.op == "var":
            done[node] = state[str(node.value)]
        else:
            done[node] = _apply(node.op, [done[arg] for arg in node.args])
    return done


def _apply(op: Op, args: list[int]) -> int:
    match op:
        case "eq":
            return int(args[0] == args[1])
        case "le":
            return int(args[0] <= args[1])
        case "and":
            return args[0] & args[1]
        case "or":
            return args[0] | args[1]
        case "not":
            return 1 - args[0]
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "where":
            return args[1] if args[0] else args[2]
        case "min":
            return min(args)
        case "max":
            return max(args)
    raise AssertionError(op)
