"""Conditions on an observed state, as `state(r) == "missed" and pinned <= pin_cap`, in Python's syntax."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from hicache_fsm.suite.protocol import Observed, RequestView, World

COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}

ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}

OF_VIEW: Final[Mapping[str, str]] = {
    "state": "state",
    "attempt": "attempt",
    "marker": "marker",
    "spent": "spent",
    "question": "question",
    "pages": "pages",
    "hold": "hold",
    "loaded": "loaded",
    "pin": "pinned",
}
"""Functions of a request, and the field of its view that each reads."""

OF_REQUEST: Final = frozenset({*OF_VIEW, "asked"})

OF_PAGE: Final[Mapping[str, Callable[[Observed, str], bool]]] = {
    "believed": lambda now, page: page in now.believed,
    "stored": lambda now, page: page in now.stored,
}

TOTALS: Final = (
    "now", "pinned", "pin_cap", "occupied", "host_free", "pool_free", "orphans", "orphan_pages", "filling", "idle",
)  # fmt: skip
OF_WORLD: Final = ("host", "pool", "context", "interval", "max_attempts", "threshold")

STATES: Final = frozenset(
    {"queued", "probing", "missed", "pending", "retrying", "parked", "transferring", "loaded", "exhausted", "aborted",
     "running", "finished", "absent"}
)  # fmt: skip
"""What `state` may be, so that a misspelt one is no condition that never holds."""


class PredicateError(ValueError):
    """No condition; one line, with the mend."""


class UntoldError(Exception):
    """The condition reads something that this target does not tell."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on one observed state."""

    text: str
    tree: ast.expr

    def holds(self, now: Observed, world: World) -> bool:
        """Whether it holds.  Raises UntoldError if the target does not tell what it reads."""
        return bool(_Value(now, world).of(self.tree))

    def reads(self, now: Observed, world: World) -> str:
        """The terms of the condition with their values, for a reader who wonders why it failed."""
        terms: dict[str, ast.expr] = {}
        for each in ast.walk(self.tree):
            if isinstance(each, ast.Call) or (isinstance(each, ast.Name) and each.id in TOTALS):
                terms[ast.unparse(each)] = each
        return ", ".join(f"{text} is {_shown(_Value(now, world).of(each))}" for text, each in terms.items())


def predicate(text: str) -> Predicate:
    """The condition in the text.  Raises PredicateError for anything but comparisons of what is observed."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise PredicateError(f'"{text}" is no condition: {error.msg}') from error
    _check(tree, text)
    return Predicate(text.strip(), tree)


def subjects(condition: Predicate) -> tuple[set[str], set[str]]:
    """The requests and the pages that the condition speaks of."""
    requests, pages = set[str](), set[str]()
    for call in ast.walk(condition.tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            (requests if call.func.id in OF_REQUEST else pages).add(ast.unparse(call.args[0]).strip("'\""))
    return requests, pages


def _check(tree: ast.expr, text: str) -> None:
    """Refuse what is not of the language."""
    match tree:
        case ast.BoolOp(values=parts) | ast.Tuple(elts=parts):
            pass
        case ast.UnaryOp(op=ast.Not(), operand=part):
            parts = [part]
        case ast.Compare(left=left, comparators=others, ops=ops) if all(type(op) in COMPARE for op in ops):
            parts = [left, *others]
            _check_states(parts, text)
        case ast.BinOp(left=left, right=right, op=op) if type(op) in ARITHMETIC:
            parts = [left, right]
        case ast.Constant(value=bool() | int() | str()):
            parts = []
        case ast.Name(id=name):
            parts = []
            if name not in (*TOTALS, *OF_WORLD):
                raise PredicateError(f'"{name}" in "{text}" is nothing that is observed{_suggest(name)}')
        case ast.Call(
            func=ast.Name(id=name),
            args=[ast.Name() | ast.Attribute() | ast.Constant(value=str())],
            keywords=[],
        ):
            parts = []
            if name not in OF_REQUEST and name not in OF_PAGE:
                raise PredicateError(f'"{name}(...)" in "{text}" is nothing that is observed{_suggest(name)}')
        case _:
            raise PredicateError(
                f'"{ast.unparse(tree)}" in "{text}": a condition compares what is observed, as state(r) == "missed"'
            )
    for part in parts:
        _check(part, text)


def _check_states(parts: list[ast.expr], text: str) -> None:
    if not any(isinstance(each, ast.Call) and ast.unparse(each.func) == "state" for each in parts):
        return
    for each in (node for part in parts for node in ast.walk(part)):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value not in STATES:
            close = get_close_matches(each.value, STATES, n=1)
            mend = f'did you mean "{close[0]}"?' if close else f"use one of {', '.join(sorted(STATES))}"
            raise PredicateError(f'"{each.value}" in "{text}" is no state: {mend}')


def _suggest(name: str) -> str:
    known = [*TOTALS, *OF_WORLD, *OF_REQUEST, *OF_PAGE]
    close = get_close_matches(name, known, n=1)
    return f': did you mean "{close[0]}"?' if close else f": use one of {', '.join(known)}"


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class _Value:
    now: Observed
    world: World

    def of(self, tree: ast.expr) -> Any:
        match tree:
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(self.of(part) for part in parts)
            case ast.BoolOp(values=parts):
                return any(self.of(part) for part in parts)
            case ast.UnaryOp(operand=part):
                return not self.of(part)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self.of(each) for each in (left, *others)]
                pairs = zip(ops, values, values[1:], strict=False)
                return all(COMPARE[type(op)](one, other) for op, one, other in pairs)
            case ast.BinOp(left=left, op=operation, right=right):
                return ARITHMETIC[type(operation)](self.of(left), self.of(right))
            case ast.Tuple(elts=parts):
                return [self.of(part) for part in parts]
            case ast.Constant(value=value):
                return value
            case ast.Call(func=ast.Name(id=name), args=[argument]):
                return self._of_subject(name, ast.unparse(argument).strip("'\""))
            case ast.Name(id=name):
                value = getattr(self.world if name in OF_WORLD else self.now, name)
                if value is None:
                    raise UntoldError(f"the target does not tell {name}")
                return value
        raise AssertionError(ast.dump(tree))

    def _of_subject(self, name: str, subject: str) -> Any:
        if name in OF_VIEW:
            return getattr(self.now.requests.get(subject, RequestView()), OF_VIEW[name])
        return OF_PAGE[name](self.now, subject) if name in OF_PAGE else self.now.asked.get(subject, 0)
