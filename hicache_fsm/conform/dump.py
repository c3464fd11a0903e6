"""TLC's dump of the state graph (`-dump dot,actionlabels`), read line by line."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

NODE: Final = re.compile(r'^(-?\d+) \[label="(.*)"(,style = filled)?\];?$')
EDGE: Final = re.compile(r'^(-?\d+) -> (-?\d+) \[label="([^"]*)"')
ESCAPED: Final = re.compile(r"\\(.)")


def nodes(path: Path) -> Iterator[tuple[str, str, bool]]:
    """The states: TLC's number for it, its text, and whether it is initial."""
    for line in _lines(path):
        node = NODE.match(line)
        if node is not None:
            yield node[1], ESCAPED.sub(_unescape, node[2]), node[3] is not None


def edges(path: Path) -> Iterator[tuple[str, str, str]]:
    """The steps: source, action, target."""
    for line in _lines(path):
        edge = EDGE.match(line)
        if edge is not None:
            yield edge[1], edge[3], edge[2]


def _lines(path: Path) -> Iterable[str]:
    with path.open(encoding="utf-8") as file:
        yield from file


def _unescape(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
