"""One TOML table being read: each key is taken with its type, and what is wrong is noted, not raised."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from hicache_fsm.spec.validate import Problem


class Table:
    """A table of a file: `key` is its own name, `label` how a problem points at it."""

    __slots__ = ("_asked", "file", "key", "label", "problems", "values")

    def __init__(
        self, file: str, key: str, label: str, values: Mapping[str, Any], problems: list[Problem]
    ) -> None:
        self.file = file
        self.key = key
        self.label = label
        self.values = values
        self.problems = problems
        self._asked: list[str] = []

    def complain(self, reason: str, mend: str) -> None:
        """Note a problem of this table."""
        self.problems.append(Problem(self.file, self.label, reason, mend))

    def text(self, key: str, default: str | None = None) -> str:
        """A string; without a default it must be there and not be empty."""
        value = self._take(key, str, "a string", default)
        if value == "" and default is None and key in self.values:
            self.complain(f"{key} is empty", f"give {key} a value")
        return str(value or "")

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of strings."""
        value = self._take(key, list, "a list of strings", default) or ()
        if all(isinstance(item, str) for item in value):
            return tuple(value)
        self.complain(f"{key} is not a list of strings", "quote every item")
        return ()

    def number(self, key: str) -> int:
        """An integer that must be there."""
        return int(self._take(key, int, "an integer", None) or 0)

    def flag(self, key: str) -> bool:
        """A truth value, false if absent."""
        return bool(self._take(key, bool, "true or false", False))

    def choice(self, key: str, options: tuple[str, ...]) -> str:
        """One of a few strings."""
        value = self.text(key)
        if value and value not in options:
            self.complain(f'unknown {key} "{value}"', f"use one of {', '.join(options)}")
        return value

    def scalar(self, key: str) -> bool | int | float | str:
        """Any scalar that must be there."""
        value: bool | int | float | str | None = self._take(key, (int, float, str), "a single value", None)
        return "" if value is None else value

    def child(self, key: str) -> "Table | None":
        """The table under `key`, which must be there."""
        value = self._take(key, dict, "a table", None)
        return None if value is None else self._below(key, value)

    def children(self, key: str, default: Mapping[str, Any] | None = None) -> list["Table"]:
        """The tables under `key`, in file order."""
        named = self._take(key, dict, "a table of tables", default) or {}
        return [
            self._below(f"{key}.{name}", value, name)
            for name, value in named.items()
            if self._is_table(f"{key}.{name}", value)
        ]

    def items(self, key: str, default: list[Any] | None = None) -> list["Table"]:
        """The array of tables under `key`, each labelled with its place, from 0."""
        array = self._take(key, list, "an array of tables", default) or []
        return [
            Table(self.file, str(place), f"[[{key}]] #{place}", value, self.problems)
            for place, value in enumerate(array)
            if self._is_table(f"{key} #{place}", value)
        ]

    def all_texts(self) -> dict[str, tuple[str, ...]]:
        """Every key of the table, each a list of strings."""
        return {key: self.texts(key) for key in self.values}

    def close(self, known: Iterable[str] = ()) -> None:
        """Note every key that nobody asked for."""
        known = [*self._asked, *known]
        for key in self.values:
            if key not in known:
                close = get_close_matches(key, known, n=1)
                self.complain(f'unknown key "{key}"', f'write "{close[0]}"' if close else "remove it")

    def _take(self, key: str, kind: type | tuple[type, ...], what: str, default: Any) -> Any:
        self._asked.append(key)
        if key not in self.values:
            if default is None:
                self.complain(f"{key} is missing", f"add {key}, {what}")
            return default
        value = self.values[key]
        # A bool is an int to Python, but not to the reader of a spec.
        if isinstance(value, kind) and (kind is not int or not isinstance(value, bool)):
            return value
        self.complain(f"{key} is {value!r}, not {what}", f"write {key} as {what}")
        return default

    def _below(self, path: str, values: Mapping[str, Any], key: str | None = None) -> "Table":
        nested = self.label != "top level"
        label = f"{self.label} {path}" if nested else f"[{path}]"
        return Table(self.file, key or path, label, values, self.problems)

    def _is_table(self, name: str, value: object) -> bool:
        if isinstance(value, dict):
            return True
        self.complain(f"{name} is {value!r}, not a table", f"write {name} as a table")
        return False
