"""`hicache-fsm ranks`: whether the ranks of one run decided alike, from their event logs."""

from pathlib import Path
from typing import Annotated

import typer

from hicache_fsm.cli.exits import Exit, bad_input, print_json
from hicache_fsm.cli.options import Json, SpecDir
from hicache_fsm.cli.render import progress
from hicache_fsm.ranks.logs import Comparison, compare_logs
from hicache_fsm.spec import load_spec


def ranks(
    logs: Annotated[list[Path], typer.Argument(help="One event log per rank (.jsonl, .jsonl.gz).")],
    allow_truncated: Annotated[
        bool, typer.Option(help="Compare the whole lines of a truncated log.")
    ] = False,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Compare the event logs of one run's ranks, and name the first decision that differs."""
    with bad_input(), progress("comparing"):
        comparison = compare_logs(logs, allow_truncated=allow_truncated, spec=load_spec(spec_dir))
    if as_json:
        print_json(comparison.as_json())
    else:
        show_comparison(comparison)
    raise typer.Exit(Exit.HOLDS if comparison.difference is None else Exit.VIOLATED)


def show_comparison(comparison: Comparison) -> None:
    """What was compared, what was not, and the first difference."""
    size = f"{comparison.decisions:,} decisions in {comparison.passes:,} passes"
    compared = ", ".join(map(str, comparison.ranks))
    if comparison.difference is None:
        typer.echo(f"ranks {compared} decided alike: {size}")
    else:
        typer.echo(comparison.difference)
        typer.echo(f"  alike before that pass: {size}")
    for path in comparison.cut:
        typer.echo(f"  {path} has no trailer: compared up to its last whole pass")
    if comparison.missing:
        typer.echo(f"  not compared, for want of a log: rank {', '.join(map(str, comparison.missing))}")
