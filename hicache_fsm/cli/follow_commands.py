"""`hicache-fsm follow`: a counterexample's steps on the shipped runtime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hicache_fsm.cli.exits import Exit, bad_input, print_json, refuse
from hicache_fsm.cli.options import Json
from hicache_fsm.conform.counterexample import (
    CounterexampleError,
    FollowedRun,
    Outcome,
    follow_counterexample,
)

EXITS: Final[Mapping[Outcome, Exit]] = {
    "followed": Exit.VIOLATED,
    "parted": Exit.HOLDS,
    "undetermined": Exit.UNDETERMINED,
}


def follow(
    file: Annotated[
        Path, typer.Argument(help="A counterexample, as `tlc MODEL --counterexample FILE` writes it.")
    ],
    as_json: Json = False,
) -> None:
    """Replay a counterexample on the runtime: 1 if it goes along to the end, 0 if it parts from it on the way."""
    with bad_input():
        try:
            run = follow_counterexample(file)
        except CounterexampleError as error:
            refuse(str(error))
    if as_json:
        print_json(run.as_json())
    else:
        show_run(Console(), run)
    raise typer.Exit(EXITS[run.outcome])


def show_run(console: Console, run: FollowedRun) -> None:
    """A row a step with what it changed in the runtime, then how far that went along."""
    console.print(f"{escape(run.about or run.name)}, on {run.model}", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("event", no_wrap=True)
    table.add_column("the runtime after it", overflow="fold")
    table.add_column("followed", no_wrap=True)
    for row in run.rows:
        changed = ", ".join(f"{name} = {value}" for name, value in row.changed.items())
        word = "[green]yes[/green]" if row.followed else "[bold red]no[/bold red]"
        table.add_row(
            str(row.number), f"{row.event} {row.subject}".rstrip(), escape(changed or "as before"), word
        )
    console.print(table)
    console.print(escape(str(run)), style="bold", highlight=False, soft_wrap=True)
