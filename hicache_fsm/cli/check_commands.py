"""`hicache-fsm check` and `explain`: the main job, the same within asked-for bounds, and what an invariant is about."""

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from hicache_fsm.bounded import (
    BoundedReport,
    Forecast,
    Means,
    Searched,
    missing,
    search_within,
    shown_finding,
)
from hicache_fsm.bounded.run import MOST_STATES
from hicache_fsm.check import run_check
from hicache_fsm.cli.exits import Exit, bad_input, print_json, refuse
from hicache_fsm.cli.options import Json, SpecDir, check_known
from hicache_fsm.cli.render import progress, show_check, show_explanation, show_invariant, show_searched
from hicache_fsm.explore.estimate import GIB
from hicache_fsm.explore.fair import ScipyMissingError
from hicache_fsm.model import Configuration
from hicache_fsm.model.bounds import Wish, asked_for
from hicache_fsm.pages import invariants_page
from hicache_fsm.spec import Spec, load_spec

BOUNDS: Final = "Bounds of your own"
ENGINES: Final = "What searches them"


class Kind(StrEnum):
    """The systems that bounds can be asked for of."""

    admission = "admission"
    node = "node"
    belief = "belief"
    ranks = "ranks"


class EngineName(StrEnum):
    """What can count states."""

    own = "own"
    tlc = "tlc"
    spin = "spin"


def _bound(text: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(help=text, rich_help_panel=BOUNDS, show_default=False)
    return found


def check(
    profile: Annotated[list[str] | None, typer.Option(help="Only this profile; may be repeated.")] = None,
    max_states: Annotated[
        int | None, typer.Option(min=1, help="Stop a search here: undetermined. (Without bounds: 20,000,000)")
    ] = None,
    system: Annotated[
        list[Kind] | None, _bound("Which system; may be repeated. (what the bounds say)")
    ] = None,
    requests: Annotated[int | None, _bound("Requests in the queue. (2)")] = None,
    attempts: Annotated[int | None, _bound("Attempts of a request, the first included. (1)")] = None,
    interval: Annotated[int | None, _bound("Passes between a miss and its re-issue. (1; ranks: 2)")] = None,
    max_attempts: Annotated[int | None, _bound("Re-issues of an attempt. (1; ranks: 2)")] = None,
    chain: Annotated[int | None, _bound("Pages of the prefix chain. (1; belief: 3)")] = None,
    host_pages: Annotated[int | None, _bound("Pages of the host pool. (one more than the chain)")] = None,
    pool: Annotated[
        int | None, _bound("Pages of the device pool. (context + 2)  Slots of both pools. (nodes)")
    ] = None,
    context: Annotated[int | None, _bound("Pages of the largest context. (2)")] = None,
    anchors: Annotated[str | None, _bound("Pages that each request's pin holds. (1,2,1,...)")] = None,
    nodes: Annotated[int | None, _bound("Nodes of the radix tree. (2)")] = None,
    loaders: Annotated[int | None, _bound("Load-backs. (2)")] = None,
    holders: Annotated[int | None, _bound("Holders that may pin a node. (2)")] = None,
    ranks: Annotated[int | None, _bound("Ranks. (2)")] = None,
    trailing: Annotated[int | None, _bound("Trailing pages that the auxiliary pool keys. (2)")] = None,
    engine: Annotated[
        list[EngineName] | None,
        typer.Option(help="Count with this engine, too; may be repeated.", rich_help_panel=ENGINES),
    ] = None,
    fair: Annotated[
        bool,
        typer.Option(
            "--fair", help="Decide what happens eventually, too, under fairness.", rich_help_panel=ENGINES
        ),
    ] = False,
    symmetry: Annotated[
        bool,
        typer.Option("--symmetry", help="Search states alike but for names once.", rich_help_panel=ENGINES),
    ] = False,
    max_memory: Annotated[
        float | None,
        typer.Option(min=0, help="GiB that states may take. (What is free)", rich_help_panel=ENGINES),
    ] = None,
    spill: Annotated[
        Path | None,
        typer.Option(help="A folder for states that memory does not hold.", rich_help_panel=ENGINES),
    ] = None,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Validate the spec, search the bounded systems for each profile, replay the shipped logs.

    With bounds of your own, search these instead, under `recommended` unless a profile is named.
    """
    with bad_input():
        spec = load_spec(spec_dir)
        check_known("profile", profile or (), spec.profiles)
        wish = Wish(
            requests, attempts, host_pages, context, _pages(anchors), chain, pool, interval, max_attempts,
            nodes, loaders, holders, ranks, trailing,
        )  # fmt: skip
        if wish.given or system:
            if spill is not None and not spill.is_dir():
                refuse(f"{spill}: no folder to keep states in: make it, or leave --spill out")
            absent = [said for each in engine or () if (said := missing(each))]
            if absent:
                refuse(absent[0])
            means = Means(
                tuple(dict.fromkeys(map(str, engine or ()))),
                fair,
                symmetry,
                max_states or MOST_STATES,
                None if max_memory is None else int(max_memory * GIB),
                spill,
            )
            chosen = asked_for(wish, [str(each) for each in system or ()])
            report = _within(spec, profile or ["recommended"], chosen, means, quiet=as_json)
            if as_json:
                print_json(report.as_json())
            raise typer.Exit(report.exit_code)
        if engine or fair or symmetry or max_memory is not None or spill is not None:
            refuse(
                "--engine, --fair, --symmetry, --max-memory and --spill go with bounds: name one, such as --requests 3"
            )
        with progress("searching") as tell:
            whole = run_check(
                spec, profile or list(spec.profiles), max_states=max_states or 20_000_000, tell=tell
            )
    if as_json:
        print_json(whole.as_json())
    else:
        show_check(Console(), whole)
    raise typer.Exit(whole.exit_code)


def _within(
    spec: Spec, profiles: Sequence[str], chosen: Sequence[Configuration], means: Means, *, quiet: bool
) -> BoundedReport:
    """Search what is asked for, and show each search as it ends."""
    console = Console(quiet=quiet)
    found: list[Searched] = []
    for configuration, profile in product(chosen, profiles):
        bounds = {**configuration.constants, **configuration.bounds}
        words = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in bounds.items())
        head = f"[bold]{configuration.system}[/bold] under {profile}: {escape(words)}"
        console.print(head, highlight=False, soft_wrap=True)

        def told(expected: Forecast) -> None:
            console.print(f"  expected: {expected}", highlight=False, soft_wrap=True)

        try:
            with progress("searching") as tell:
                found.append(search_within(spec, profile, configuration, means, told=told, tell=tell))
        except ScipyMissingError as error:
            refuse(str(error))
        show_searched(console, found[-1])
    return BoundedReport(tuple(found))


def _pages(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        refuse(f'--anchors "{text}": numbers of pages with commas between, such as 1,2,1')


def explain(
    invariant: Annotated[
        str | None, typer.Argument(help="An invariant's id; without it, all are listed.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Show how this profile breaks it: a shortest counterexample.")
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Print the page of all invariants as Markdown.")
    ] = False,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Explain an invariant: its sentence, why it should hold, its witness, where it is checked, how it breaks."""
    with bad_input():
        spec = load_spec(spec_dir)
        check_known("invariant", [invariant] if invariant is not None else (), spec.invariants)
        check_known("profile", [profile] if profile is not None else (), spec.profiles)
        if profile is not None and invariant is None:
            refuse("--profile shows how it breaks an invariant: name one, such as headroom")
        if profile is not None and invariant is not None:
            _explain_break(spec, profile, invariant, as_json)
    if page:
        typer.echo(invariants_page(spec), nl=False)
        return
    chosen = [spec.invariants[invariant]] if invariant else list(spec.invariants.values())
    if as_json:
        print_json([{**asdict(i), "witness": str(i.witness)} for i in chosen])
    else:
        for one in chosen:
            show_invariant(Console(), spec, one, brief=invariant is None)


def _explain_break(spec: Spec, profile: str, invariant: str, as_json: bool) -> None:
    """Show a counterexample and exit: 1 if there is one, 0 if the default bounds show none."""
    with progress("searching") as tell:
        found = shown_finding(spec, profile, invariant, tell=tell)
    if as_json:
        print_json(None if found is None else found.as_json())
    elif found is None:
        typer.echo(f"{invariant} holds under {profile} within the default bounds")
        for finding in spec.profiles[profile].findings:
            if finding.invariant == invariant and finding.shown_by == "replay":
                typer.echo(f"but in logs of the real engine it does not: {finding.why}")
    else:
        show_explanation(Console(), found)
    raise typer.Exit(Exit.HOLDS if found is None else Exit.VIOLATED)
