"""Expressions compiled to a list of numpy operations on columns, shared subexpressions computed once."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hicache_fsm.model.expr import FALSE, TRUE, Expr, walk

Value = npt.NDArray[np.int8] | npt.NDArray[np.bool_] | np.int8 | np.bool_


class Program:
    """Computes `roots` from columns of variables; a root that is constant comes out as a scalar."""

    __slots__ = ("_length", "_load", "_roots", "_steps", "inputs")

    def __init__(self, roots: Sequence[Expr]) -> None:
        place: dict[Expr, int] = {}
        self._load: list[tuple[int, str]] = []
        self._steps: list[tuple[int, str, tuple[int, ...], Value | None]] = []
        for node in walk(roots):
            place[node] = target = len(place)
            if node.op == "var":
                self._load.append((target, str(node.value)))
            elif node.op == "const":
                self._steps.append((target, "const", (), _constant(node)))
            else:
                self._steps.append((target, node.op, tuple(place[arg] for arg in node.args), None))
        self._length = len(place)
        self._roots = [place[root] for root in roots]
        self.inputs = [name for _, name in self._load]

    def run(self, columns: Mapping[str, npt.NDArray[np.int8]]) -> list[Value]:
        """The values of the roots."""
        slots: list[Value] = [np.int8(0)] * self._length
        for target, name in self._load:
            slots[target] = columns[name]
        for target, op, args, constant in self._steps:
            slots[target] = constant if constant is not None else _compute(op, [slots[arg] for arg in args])
        return [slots[place] for place in self._roots]


def _constant(node: Expr) -> Value:
    if node in (TRUE, FALSE):
        return np.bool_(node == TRUE)
    return np.int8(int(node.value))


def _compute(op: str, args: list[Value]) -> Value:
    result: Value
    match op:
        case "eq":
            result = np.equal(args[0], args[1])
        case "le":
            result = np.less_equal(args[0], args[1])
        case "and":
            result = np.logical_and(args[0], args[1])
        case "or":
            result = np.logical_or(args[0], args[1])
        case "not":
            result = np.logical_not(args[0])
        case "add":
            result = np.add(args[0], args[1])
        case "sub":
            result = np.subtract(args[0], args[1])
        case "where":
            result = np.where(args[0], args[1], args[2])
        case "min":
            result = np.minimum(args[0], args[1])
        case "max":
            result = np.maximum(args[0], args[1])
        case _:
            raise AssertionError(op)
    return result
