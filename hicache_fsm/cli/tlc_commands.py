"""`hicache-fsm tlc`: the TLA+ models, and logs judged by TLC."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hicache_fsm.cli.exits import Exit, bad_input, print_json, refuse
from hicache_fsm.cli.options import Json
from hicache_fsm.cli.render import progress, show_trace
from hicache_fsm.spec import Spec
from hicache_fsm.tlc import TlcError, locate, tla_dir
from hicache_fsm.tlc.counterexample import origin, to_counterexample
from hicache_fsm.tlc.manifest import Entry, load_manifest
from hicache_fsm.tlc.suite import Result, run_all
from hicache_fsm.tlc.traces import TraceVerdict, check_logs

Java = Annotated[str | None, typer.Option("--java", help="A Java to use in place of the packaged one.")]


@contextmanager
def tlc_input() -> Iterator[None]:
    """As `bad_input`, for TLC's errors too."""
    with bad_input():
        try:
            yield
        except TlcError as error:
            refuse(str(error))


def tlc(
    models: Annotated[
        list[str] | None, typer.Argument(help="Models to check, by the names of their cfgs.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check every model of the manifest.")] = False,
    size: Annotated[
        str | None, typer.Option(help="Check the models of this size: small, medium or large.")
    ] = None,
    counterexample: Annotated[
        Path | None, typer.Option(help="Write the only model's counterexample here.")
    ] = None,
    java: Java = None,
    as_json: Json = False,
) -> None:
    """Check TLA+ models with TLC, two at a time, and compare with tla/manifest.json; without models, list them."""
    with tlc_input():
        folder = tla_dir()
        entries = load_manifest(folder)
        chosen = _chosen(entries, models or [], every, size)
        if not chosen:
            _list(entries, as_json)
            return
        tools = locate(java)
        with progress("checking") as tell:
            results = list(run_all(tools, folder, chosen, tell))
        _write_counterexample(folder, results, counterexample)
    if as_json:
        print_json([result.as_json() for result in results])
    else:
        show_results(Console(), results)
    raise typer.Exit(exit_of(results))


def show_results(console: Console, results: Sequence[Result]) -> None:
    """One line a model; the counterexample of a model asked for alone, and of one that surprises."""
    for result in sorted(results, key=lambda each: each.entry.name):
        word = "[green]as expected[/green]" if result.as_expected else "[bold red]NOT AS EXPECTED[/bold red]"
        found = result.outcome
        counts = (
            "" if found is None else f"  {found.verdict}, {found.distinct:,} states, {found.seconds:.1f} s"
        )
        console.print(f"{result.entry.name:<44} {word}{counts}", highlight=False, soft_wrap=True)
        for problem in result.problems:
            console.print(f"    {problem}", highlight=False, soft_wrap=True)
        trace = found.trace() if found is not None else None
        if trace is not None and (len(results) == 1 or not result.as_expected):
            console.print(f"    {trace.about}", highlight=False, soft_wrap=True)
            show_trace(console, trace)


def exit_of(results: Sequence[Result]) -> Exit:
    """Undetermined only if nothing worse: no verdict is never a pass."""
    if any(result.problems for result in results if result.outcome is not None):
        return Exit.VIOLATED
    return Exit.HOLDS if all(result.as_expected for result in results) else Exit.UNDETERMINED


def tlc_verdicts(
    spec: Spec, logs: Sequence[Path], *, java: str | None = None, allow_truncated: bool = False
) -> list[TraceVerdict]:
    """What `replay --tlc` adds: TLC's verdict on each log, all in one JVM.  Refuses bad input with exit 2."""
    with tlc_input(), progress("TLC reads the logs") as tell:
        return check_logs(locate(java), spec, logs, allow_truncated=allow_truncated, tell=tell)


def _chosen(entries: dict[str, Entry], models: Sequence[str], every: bool, size: str | None) -> list[Entry]:
    unknown = sorted(set(models) - set(entries))
    if unknown:
        refuse(f"unknown model {', '.join(unknown)}: `hicache-fsm tlc` lists them")
    if size is not None and size not in ("small", "medium", "large"):
        refuse(f'unknown size "{size}": small, medium or large')
    if every:
        return list(entries.values())
    return [entry for name, entry in entries.items() if name in models or entry.size == size]


def _list(entries: dict[str, Entry], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {"model": e.name, "system": e.system, "result": e.result, "size": e.size}
                for e in entries.values()
            ]
        )
        return
    for entry in entries.values():
        states = "" if entry.distinct is None else f"{entry.distinct:,} states"
        typer.echo(f"{entry.name:<44} {entry.size:<7} {entry.result:<18} {states}".rstrip())


def _write_counterexample(folder: Path, results: Sequence[Result], path: Path | None) -> None:
    if path is None:
        return
    traces = [(r.entry, trace) for r in results if r.outcome and (trace := r.outcome.trace()) is not None]
    if len(traces) != 1:
        refuse(f"--counterexample wants one counterexample, there are {len(traces)}")
    entry, trace = traces[0]
    model = origin(entry.system, (folder / entry.cfg).read_text(encoding="utf-8"))
    path.write_text(to_counterexample(trace, entry.name, model), encoding="utf-8")
