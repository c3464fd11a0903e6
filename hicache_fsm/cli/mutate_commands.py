"""`hicache-fsm mutate`: alter the spec piece by piece, and see which check would miss it."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hicache_fsm.cli.exits import Exit, bad_input, needing, print_json, refuse
from hicache_fsm.cli.options import Json, SpecDir, check_known
from hicache_fsm.cli.render import progress
from hicache_fsm.spec import load_spec

if TYPE_CHECKING:
    from hicache_fsm.mutate import Fate, MutationReport

CHECKS = ("validation", "search", "conformance", "replay", "proof")
"""In the order in which a mutant meets them."""


def mutate(
    only: Annotated[
        list[str] | None, typer.Option(help="Only this machine or profile; may be repeated.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Mutants judged at once.")] = 2,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Remove or alter each row, guard, effect and constant of the spec, and report which check notices."""
    with needing("prove"):
        from hicache_fsm.mutate import load_equivalents
        from hicache_fsm.mutate import mutate as run
    with bad_input():
        spec = load_spec(spec_dir)
        check_known("machine or profile", only or (), (*spec.machines, *spec.profiles))
        try:
            argued = load_equivalents()
        except ValueError as error:
            refuse(str(error))
        with progress("mutating") as tell:
            report = run(spec, only=only or (), jobs=jobs, argued=argued, tell=tell)
    if as_json:
        print_json(report.as_json())
    else:
        show_mutation(Console(), report)
    raise typer.Exit(Exit(report.exit_code))


def show_mutation(console: Console, report: "MutationReport") -> None:
    """Per machine and profile how many mutants each check killed and how fast; then those that live."""
    table = Table(box=None)
    for name in ("", "mutants", *CHECKS, "equivalent", "alive", "s/kill"):
        table.add_column(name, justify="right" if name else "left")
    for place in dict.fromkeys(fate.place for fate in report.fates):
        fates = [fate for fate in report.fates if fate.place == place]
        table.add_row(place, *_row(report, fates))
    table.add_row("all", *_row(report, report.fates), style="bold")
    console.print(table)
    for fate in report.survivors:
        console.print(f"  [bold red]alive[/bold red]  {escape(fate.name)}", highlight=False, soft_wrap=True)
    for name in report.stale:
        console.print(
            f"  [bold red]stale argument[/bold red]  {escape(name)}", highlight=False, soft_wrap=True
        )
    console.print(
        f"score {100 * report.score:.1f} % in {report.seconds:.0f} s", style="bold", highlight=False
    )


def _row(report: "MutationReport", fates: "tuple[Fate, ...] | list[Fate]") -> list[str]:
    killed = [fate for fate in fates if fate.kill]
    counts = [sum(fate.kill is not None and fate.kill.check == check for fate in fates) for check in CHECKS]
    argued = sum(fate.kill is None and fate.name in report.argued for fate in fates)
    mean = sum(fate.seconds for fate in killed) / len(killed) if killed else 0.0
    return [*map(str, (len(fates), *counts, argued, len(fates) - len(killed) - argued)), f"{mean:.2f}"]
