"""The model's expressions read by z3: variables are integers without bounds, conditions are formulas."""

from collections.abc import Mapping
from typing import Any

import z3

from hicache_fsm.model.expr import FALSE, TRUE, Expr, Op, walk

Term = Any
"""A z3 integer or formula: z3 ships no types."""


class Reader:
    """Translates expressions, each node once; `names` gives variables other terms than their own constants."""

    def __init__(self, names: Mapping[str, Term] | None = None) -> None:
        self._names = dict(names or {})
        self._known: dict[Expr, Term] = {}

    def term(self, root: Expr) -> Term:
        """The z3 term of one expression."""
        if root not in self._known:
            for node in walk([root]):
                if node not in self._known:
                    self._known[node] = self._node(node)
        return self._known[root]

    def _node(self, node: Expr) -> Term:
        if node in (TRUE, FALSE):
            return z3.BoolVal(node == TRUE)
        if node.op == "const":
            return z3.IntVal(int(node.value))
        if node.op == "var":
            name = str(node.value)
            return self._names[name] if name in self._names else z3.Int(name)
        return _apply(node.op, [self._known[arg] for arg in node.args])


def _apply(op: Op, args: list[Term]) -> Term:
    match op:
        case "eq":
            return args[0] == args[1]
        case "le":
            return args[0] <= args[1]
        case "and":
            return z3.And(*args)
        case "or":
            return z3.Or(*args)
        case "not":
            return z3.Not(args[0])
        case "add":
            return args[0] + args[1]
        case "sub":
            return args[0] - args[1]
        case "where":
            return z3.If(*args)
        case "min":
            return z3.If(args[0] <= args[1], args[0], args[1])
        case "max":
            return z3.If(args[0] >= args[1], args[0], args[1])
    raise AssertionError(op)
