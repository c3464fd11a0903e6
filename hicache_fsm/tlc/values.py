"""TLA+ values as TLC prints them."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from hicache_fsm.tlc.errors import TlcError

Scalar = bool | int | str
Value = Scalar | frozenset[object] | tuple["Value", ...] | Mapping[Scalar, "Value"]
"""A string and a model value are both a str, a sequence is a tuple, records and functions are mappings."""

TOKEN: Final = re.compile(r'\s*("(?:[^"\\]|\\.)*"|<<|>>|\|->|:>|@@|\.\.|-?\d+|[A-Za-z_]\w*|[{}\[\](),])')


def parse(text: str) -> Value:
    """The value that `text` spells.  Raises TlcError if it spells none."""
    parser = _Parser(text)
    value = parser.value()
    parser.end()
    return value


def flatten(name: str, value: Value) -> Iterator[tuple[str, Scalar]]:
    """The scalars of a value, each under a path such as `pin[r0]`; a set is one scalar, its text."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from flatten(f"{name}[{key}]", each)
    elif isinstance(value, tuple):
        for place, each in enumerate(value, 1):
            yield from flatten(f"{name}[{place}]", each)
    else:
        yield name, show(value) if isinstance(value, frozenset) else value


def show(value: object) -> str:
    """A value in TLA+'s own words."""
    match value:
        case bool():
            return str(value).upper()
        case frozenset():
            return "{" + ", ".join(sorted(map(show, value))) + "}"
        case tuple():
            return "<<" + ", ".join(map(show, value)) + ">>"
        case _:
            return str(value)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = TOKEN.findall(text)
        self._at = 0
        if TOKEN.sub("", text).strip():
            raise self._error()

    def value(self) -> Value:
        left = self._operand()
        if self._peek() != "..":
            return left
        self._take("..")
        right = self._operand()
        if not isinstance(left, int) or not isinstance(right, int):
            raise self._error()
        return frozenset(range(left, right + 1))

    def end(self) -> None:
        if self._at != len(self._tokens) or not self._tokens:
            raise self._error()

    def _operand(self) -> Value:
        token = self._next()
        match token:
            case "TRUE" | "FALSE":
                return token == "TRUE"
            case "<<":
                return tuple(self._list(">>"))
            case "{":
                return frozenset(_hashable(each) for each in self._list("}"))
            case "[":
                return dict(self._pairs("|->", ",", "]"))
            case "(":
                return dict(self._pairs(":>", "@@", ")"))
        if token[0] == '"':
            return token[1:-1].replace('\\"', '"').replace("\\\\", "\\")
        if token[0] == "-" or token.isdigit():
            return int(token)
        if token[0].isalpha() or token[0] == "_":
            return token
        raise self._error()

    def _list(self, closing: str) -> Iterator[Value]:
        if self._peek() == closing:
            self._take(closing)
            return
        while True:
            yield self.value()
            if self._next_is(closing, ","):
                return

    def _pairs(self, arrow: str, separator: str, closing: str) -> Iterator[tuple[Scalar, Value]]:
        while True:
            key = self.value()
            if not isinstance(key, str | int):
                key = show(key)
            self._take(arrow)
            yield key, self.value()
            if self._next_is(closing, separator):
                return

    def _next_is(self, closing: str, separator: str) -> bool:
        """Whether the list ends here; takes the closing or the separating token."""
        token = self._next()
        if token not in (closing, separator):
            raise self._error()
        return token == closing

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        if not token:
            raise self._error()
        self._at += 1
        return token

    def _take(self, wanted: str) -> None:
        if self._next() != wanted:
            raise self._error()

    def _error(self) -> TlcError:
        return TlcError(f"not a TLA+ value: {self._text[:120]}")


def _hashable(value: Value) -> object:
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, tuple):
        return tuple(_hashable(each) for each in value)
    return value
