"""`hicache-fsm scenarios`: event sequences with expectations, on the runtime, the model or a real SGLang."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hicache_fsm.cli.exits import Exit, bad_input, print_json, refuse
from hicache_fsm.cli.options import Json, check_known
from hicache_fsm.cli.render import progress
from hicache_fsm.spec import load_spec

if TYPE_CHECKING:
    from hicache_fsm.suite.protocol import Target
    from hicache_fsm.suite.runner import ScenarioRun
    from hicache_fsm.suite.scenario import Scenario

COLOURS = {"pass": "green", "fail": "bold red", "inexpressible": "magenta"}


def scenarios(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Scenario files, or folders of them; the shipped ones by default."),
    ] = None,
    target: Annotated[
        str, typer.Option(help="runtime, model, sglang-0.5.19 to sglang-0.5.23 or package.module:factory.")
    ] = "runtime",
    profile: Annotated[str, typer.Option(help="The rules of runtime and model.")] = "recommended",
    expected: Annotated[
        bool, typer.Option("--expected", help="Compare with the outcomes listed beside the scenarios.")
    ] = False,
    write: Annotated[
        bool,
        typer.Option("--record", help="List the outcomes beside the scenarios, in place of those there."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show each step: the reply, and what it changed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Drive a cache along scenarios: 0 if all pass, 1 if one fails, 3 if one is inexpressible and none fails.

    With --expected, 0 if each comes out as listed and 1 otherwise.
    """
    from hicache_fsm.suite.expected import FILE, ExpectedError, key, load_expected, record, surprises

    with bad_input():
        chosen, found = _target(target, profile), _load(paths or [])
        with progress(f"driving {target}") as tell:
            runs = _run(chosen, found, tell)
        column, beside = key(target, profile), _folder(found) / FILE
        if write:
            record(beside, column, runs)
        try:
            told = surprises(load_expected(beside), column, runs) if expected else []
        except ExpectedError as error:
            refuse(str(error))
    if as_json:
        print_json([run.as_json() for run in runs])
    else:
        show(Console(), runs, column, verbose=verbose)
        if expected and not told:
            typer.echo(f"each came out as {beside} lists it")
    for line in told:
        typer.echo(line, err=True)
    raise typer.Exit(_exit(runs, told, judged_by_list=expected or write))


def _target(name: str, profile: str) -> "Target":
    from hicache_fsm.suite.protocol import UnsupportedError
    from hicache_fsm.suite.targets import target

    spec = load_spec()
    check_known("profile", [profile], spec.profiles)
    try:
        return target(name, profile, spec=spec)
    except UnsupportedError as error:
        refuse(str(error))


def _load(paths: list[Path]) -> "list[Scenario]":
    from hicache_fsm.suite.scenario import ScenarioError, collect, load, shipped

    try:
        return [load(path) for path in collect(paths or [shipped()])]
    except ScenarioError as error:
        refuse(str(error))


def _run(target: "Target", found: "list[Scenario]", tell: Callable[[str], None]) -> "list[ScenarioRun]":
    from hicache_fsm.suite.runner import run
    from hicache_fsm.suite.targets.sglang import EngineError

    runs = []
    try:
        for scenario in found:
            tell(scenario.id)
            runs.append(run(target, scenario))
    except EngineError as error:
        refuse(str(error))
    finally:
        stop = getattr(target, "stop", None)
        if stop is not None:
            stop()
    return runs


def _folder(found: "list[Scenario]") -> Path:
    path = found[0].path
    return path.parent if path is not None else Path()


def _exit(runs: "list[ScenarioRun]", told: list[str], *, judged_by_list: bool) -> Exit:
    if judged_by_list:
        return Exit.VIOLATED if told else Exit.HOLDS
    outcomes = {run.verdict.outcome for run in runs}
    if "fail" in outcomes:
        return Exit.VIOLATED
    return Exit.UNDETERMINED if "inexpressible" in outcomes else Exit.HOLDS


def show(console: Console, runs: "list[ScenarioRun]", column: str, *, verbose: bool) -> None:
    """Each scenario's verdict, or all its steps if wanted, and how many came to what."""
    if verbose:
        for run in runs:
            _show_steps(console, run)
    else:
        _show_verdicts(console, runs)
    counts = {word: sum(run.verdict.outcome == word for run in runs) for word in COLOURS}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    size = f"{len(runs)} scenario{'s' if len(runs) != 1 else ''}"
    console.print(f"{column}: {size}: {told}", style="bold", highlight=False)


def _show_verdicts(console: Console, runs: "list[ScenarioRun]") -> None:
    """A line a scenario, and below it, where it did not pass, at which step and why."""
    words = max(len(run.verdict.outcome) for run in runs)
    ids = max(len(run.scenario.id) for run in runs)
    for run in runs:
        outcome, colour = run.verdict.outcome, COLOURS[run.verdict.outcome]
        line = f"[{colour}]{outcome:<{words}}[/{colour}]  {run.scenario.id:<{ids}}  {' '.join(run.scenario.upstream)}"
        console.print(line.rstrip(), highlight=False, soft_wrap=True)
        if outcome != "pass":
            indent = " " * (words + 2)
            console.print(f"{indent}{escape(_why(run))}", highlight=False, soft_wrap=True)


def _why(run: "ScenarioRun") -> str:
    """The verdict with the step's text and the reason, which repeats the condition that was expected."""
    step, told = run.verdict.step, run.verdict.why
    text = run.scenario.steps[step - 1].text if step else ""
    told = told.removeprefix(f"{text.lstrip('?').removeprefix('expect ')}: ")
    return ": ".join(filter(None, (str(run.verdict), f"`{text}`" if text else "", told)))


def _show_steps(console: Console, run: "ScenarioRun") -> None:
    colour = COLOURS[run.verdict.outcome]
    console.print(f"[bold]{run.scenario.id}[/bold]  {' '.join(run.scenario.upstream)}", highlight=False)
    console.print(f"  {escape(run.scenario.about)}", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=True)
    table.add_column("", justify="right", no_wrap=True)
    for name in ("step", "reply", "what changed"):
        table.add_column(name, overflow="fold")
    for taken in run.steps:
        reply = "" if taken.reply is None else f"{taken.reply.answer} {escape(taken.reply.why)}".rstrip()
        told = [escape("; ".join(taken.changed) or taken.note)]
        told += [f"[bold red]{escape(str(finding))}[/bold red]" for finding in taken.findings]
        table.add_row(str(taken.number), escape(taken.text), reply, "\n".join(filter(None, told)))
    console.print(table, highlight=False)
    why = f": {escape(run.verdict.why)}" if run.verdict.why else ""
    console.print(f"  [{colour}]{run.verdict}[/{colour}]{why}\n", highlight=False, soft_wrap=True)
