"""What several commands take, and the one line for a name that the spec does not have."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from hicache_fsm.cli.exits import refuse

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
SpecDir = Annotated[Path | None, typer.Option("--spec", help="A spec folder other than the shipped one.")]


def check_known(kind: str, names: Iterable[str], there: Iterable[str]) -> None:
    """Refuse names that are not there, and say which are."""
    there = list(there)
    if unknown := sorted(set(names) - set(there)):
        refuse(f"unknown {kind} {', '.join(unknown)}; there are {', '.join(there)}")
