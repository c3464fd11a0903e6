"""Writes tla/PrefetchLifecycle.tla from spec/prefetch.toml: the lifecycle that the whole system refines.

python -m hicache_fsm.tlc.generate [FOLDER]
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from hicache_fsm.spec import Machine, load_spec
from hicache_fsm.tlc.locate import tla_dir

FILE = "PrefetchLifecycle.tla"
WIDTH = 77


def lifecycle(machine: Machine) -> str:
    """The module's text: states, and edges whatever their guard."""
    edges = dict.fromkeys((row.source, row.event, row.dest) for row in machine.transitions)
    triples = ",\n".join(f'    <<"{source}", "{event}", "{dest}">>' for source, event, dest in edges)
    title = " MODULE PrefetchLifecycle "
    return "\n".join(
        [
            title.center(WIDTH - 2, "-").join(("-", "-")),
            f"(* Generated from spec/{machine.name}.toml: do not edit. *)",
            "",
            f"States == {_names(machine.states)}",
            "",
            f'Initial == "{machine.initial}"',
            "",
            f"Terminal == {_names(name for name in machine.states if name in machine.terminal)}",
            "",
            "(* <<source, event, dest>>, whatever the guard. *)",
            "Edges == {",
            triples,
            "}",
            "",
            "=" * WIDTH,
            "",
        ]
    )


def main(folder: Path | None = None) -> Path:
    """Write the module and return its path.  Raises OSError if it cannot be written."""
    path = (folder or tla_dir()) / FILE
    path.write_text(lifecycle(load_spec().machines["prefetch"]), encoding="utf-8")
    return path


def _names(names: Iterable[str]) -> str:
    return "{" + ", ".join(f'"{name}"' for name in names) + "}"


if __name__ == "__main__":
    print(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
