"""`hicache-fsm conform`: the model, TLC and the shipped runtime, side by side."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hicache_fsm.cli.exits import print_json, refuse
from hicache_fsm.cli.options import Json
from hicache_fsm.cli.render import progress
from hicache_fsm.cli.tlc_commands import Java, tlc_input
from hicache_fsm.conform import PLAN, Case, Comparison, ConformError, Report, case, compare, exit_code, sides
from hicache_fsm.conform.plan import Comparison as Planned
from hicache_fsm.spec import Spec, load_spec
from hicache_fsm.tlc import locate


def conform(
    configuration: Annotated[
        list[str] | None,
        typer.Argument(help="Configurations to compare, as in spec/bounds; the quick ones otherwise."),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Only this profile.")] = None,
    every: Annotated[bool, typer.Option("--all", help="The slow comparisons too.")] = False,
    tlc: Annotated[bool, typer.Option(help="Compare TLC too.")] = True,
    runtime: Annotated[bool, typer.Option(help="Compare the runtime too, where it is planned.")] = True,
    java: Java = None,
    as_json: Json = False,
) -> None:
    """Compare distinct states, depth and labelled edges of the model, TLC and the shipped runtime."""
    with tlc_input():
        planned = _planned(configuration or [], profile, every)
        spec = load_spec()
        tools = locate(java) if tlc else None
        reports = []
        with progress("comparing") as tell:
            for one in planned:
                chosen = _case(spec, one)
                who = sides(chosen, tools, runtime=runtime and one.runtime)
                reports.append(compare(chosen, who, edges=one.edges, tell=tell))
    if as_json:
        print_json([report.as_json() for report in reports])
    else:
        show_reports(Console(), reports)
    raise typer.Exit(exit_code(reports))


def show_reports(console: Console, reports: Sequence[Report]) -> None:
    """A title for each comparison, a row for each of its sides, then what differs."""
    for report in reports:
        for each in report.comparisons:
            _show_comparison(console, f"{report.configuration} ({report.profile})", each)


def _show_comparison(console: Console, name: str, found: Comparison) -> None:
    word = "[green]equal[/green]" if found.equal else "[bold red]DIFFERENT[/bold red]"
    without = f", without {', '.join(found.without)}" if found.without else ""
    console.print(f"[bold]{name}[/bold]: {found.view}{without}: {word}", highlight=False, soft_wrap=True)
    table = Table(box=None)
    table.add_column("side", min_width=8)
    for column in ("states", "depth", "edges", "seconds"):
        table.add_column(column, justify="right", min_width=9)
    for side in found.sides:
        edges = "" if side.edges is None else f"{side.edges:,}"
        table.add_row(side.name, f"{side.distinct:,}", str(side.depth), edges, f"{side.seconds:.1f}")
    console.print(table)
    if found.difference is not None:
        console.print(str(found.difference), highlight=False, markup=False, soft_wrap=True)


def _planned(names: Sequence[str], profile: str | None, every: bool) -> list[Planned]:
    """What the plan has for the names, or what they would get if it had nothing."""
    known = [one for one in PLAN if profile in (None, one.profile)]
    if not names:
        return [one for one in known if every or one.quick]
    found = []
    for name in names:
        planned = [one for one in known if one.configuration == name]
        found += planned or [Planned(name, profile or "recommended")]
    return found


def _case(spec: Spec, one: Planned) -> Case:
    try:
        return case(spec, one.configuration, one.profile)
    except ConformError as error:
        refuse(str(error))
