"""Parts of an SGLang wheel's source, run as they stand, without importing the rest of it."""

from __future__ import annotations
import __future__ as future

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def excerpt(source: Path, names: Sequence[str], **given: object) -> dict[str, Any]:
    """The classes and functions called `names` in the file ("Class.method" for a method), by their names.

    They see `given` as their module's globals, and each other. Raises OSError for a file that cannot be read and
    KeyError for a name that is not there.
    """
    module = ast.parse(source.read_text())
    known: dict[str, ast.stmt] = {}
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            known[node.name] = node
        if isinstance(node, ast.ClassDef):
            known |= {
                f"{node.name}.{each.name}": each for each in node.body if isinstance(each, ast.FunctionDef)
            }
    part = ast.Module(body=[known[name] for name in names], type_ignores=[])
    space: dict[str, Any] = {"__name__": __name__, **given}
    # Annotations name what is not imported here.
    exec(compile(part, source, "exec", flags=future.annotations.compiler_flag, dont_inherit=True), space)
    return {name: space[name.rpartition(".")[2]] for name in names}
