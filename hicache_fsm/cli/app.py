"""The command line: check, replay, record, diagram, explain."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hicache_fsm.check import run_check
from hicache_fsm.cli.conform_commands import conform
from hicache_fsm.cli.exits import Exit, bad_input, print_json, refuse
from hicache_fsm.cli.follow_commands import follow
from hicache_fsm.cli.mutate_commands import mutate
from hicache_fsm.cli.prove_commands import prove
from hicache_fsm.cli.render import progress, show_check, show_invariant, show_replay
from hicache_fsm.cli.tlc_commands import Java, tlc, tlc_verdicts
from hicache_fsm.machine import markdown, mermaid
from hicache_fsm.pages import invariants_page, machines_page
from hicache_fsm.replay import judge_file
from hicache_fsm.sglang.record import record as record_log
from hicache_fsm.spec import load_spec

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Check, replay and record the lifecycles behind SGLang's HiCache storage prefetch. "
    "Exit codes: 0 holds, 1 violated, 2 bad input, 3 undetermined.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
SpecDir = Annotated[Path | None, typer.Option("--spec", help="A spec folder other than the shipped one.")]


class Form(StrEnum):
    """How `diagram` draws a machine."""

    mermaid = "mermaid"
    table = "table"


@app.command()
def check(
    profile: Annotated[list[str] | None, typer.Option(help="Only this profile; may be repeated.")] = None,
    max_states: Annotated[int, typer.Option(min=1, help="Stop a search here: undetermined.")] = 20_000_000,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Validate the spec, search the bounded systems for each profile, replay the shipped logs."""
    with bad_input():
        spec = load_spec(spec_dir)
        unknown = sorted(set(profile or ()) - set(spec.profiles))
        if unknown:
            refuse(f"unknown profile {', '.join(unknown)}; there are {', '.join(spec.profiles)}")
        with progress("searching") as tell:
            report = run_check(spec, profile or list(spec.profiles), max_states=max_states, tell=tell)
    if as_json:
        print_json(report.as_json())
    else:
        show_check(Console(), report)
    raise typer.Exit(report.exit_code)


app.command()(tlc)
app.command()(conform)
app.command()(follow)
app.command()(prove)
app.command()(mutate)


@app.command()
def replay(
    logs: Annotated[list[Path], typer.Argument(help="Event logs (.jsonl, .jsonl.gz).")],
    allow_truncated: Annotated[bool, typer.Option(help="Judge the whole lines of a truncated log.")] = False,
    with_tlc: Annotated[bool, typer.Option("--tlc", help="Have TLC judge the logs too, in one run.")] = False,
    java: Java = None,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Judge event logs against the machines."""
    with bad_input():
        spec = load_spec(spec_dir)
        with progress("replaying"):
            verdicts = [judge_file(spec, log, allow_truncated=allow_truncated) for log in logs]
    second = tlc_verdicts(spec, logs, java=java, allow_truncated=allow_truncated) if with_tlc else []
    if as_json:
        tlc_says = [{"tlc": verdict.as_json()} for verdict in second] or [{}] * len(verdicts)
        print_json([verdict.as_json() | also for verdict, also in zip(verdicts, tlc_says, strict=True)])
    else:
        for verdict in verdicts:
            show_replay(Console(), verdict)
        for told in second:
            typer.echo(f"TLC: {told}")
    holds = all(verdict.holds for verdict in verdicts) and all(told.accepted for told in second)
    raise typer.Exit(Exit.HOLDS if holds else Exit.VIOLATED)


@app.command()
def record(
    sglang: Annotated[str, typer.Option(help="The SGLang version to run: 0.5.19 or 0.5.23.")],
    out: Annotated[Path, typer.Option(help="Where the event log goes; it is overwritten.")],
    run: Annotated[
        list[str] | None, typer.Argument(help="After --: options of the run, see docs/harness.md.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a multi-turn workload on a real SGLang on the CPU, write its event log and judge it."""
    with bad_input():
        try:
            with progress(f"running SGLang {sglang}") as tell:
                record_log(sglang, out, arguments=run or (), progress=tell)
        except ValueError as error:
            refuse(str(error))
        verdict = judge_file(load_spec(), out)
    if as_json:
        print_json(verdict.as_json())
    else:
        show_replay(Console(), verdict)
    raise typer.Exit(Exit.HOLDS if verdict.holds else Exit.VIOLATED)


@app.command()
def diagram(
    machine: Annotated[str | None, typer.Argument(help="Without it, the whole page of machines.")] = None,
    form: Annotated[
        Form, typer.Option("--format", help="A Mermaid diagram or a Markdown table.")
    ] = Form.mermaid,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Draw a machine, or print the page of all machines."""
    with bad_input():
        spec = load_spec(spec_dir)
        if machine is not None and machine not in spec.machines:
            refuse(f"unknown machine {machine}; there are {', '.join(spec.machines)}")
    if as_json:
        chosen_machines = [spec.machines[machine]] if machine else list(spec.machines.values())
        print_json({one.name: [asdict(row) for row in one.transitions] for one in chosen_machines})
    elif machine is None:
        typer.echo(machines_page(spec), nl=False)
    else:
        chosen = spec.machines[machine]
        typer.echo(mermaid(chosen) if form is Form.mermaid else markdown(chosen))


@app.command()
def explain(
    invariant: Annotated[
        str | None, typer.Argument(help="An invariant's id; without it, all are listed.")
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Print the page of all invariants as Markdown.")
    ] = False,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Explain an invariant: its sentence, why it should hold, its witness, where it is checked."""
    with bad_input():
        spec = load_spec(spec_dir)
        if invariant is not None and invariant not in spec.invariants:
            refuse(f"unknown invariant {invariant}; there are {', '.join(spec.invariants)}")
    if page:
        typer.echo(invariants_page(spec), nl=False)
        return
    chosen = [spec.invariants[invariant]] if invariant else list(spec.invariants.values())
    if as_json:
        print_json([{**asdict(i), "witness": str(i.witness)} for i in chosen])
    else:
        for one in chosen:
            show_invariant(Console(), spec, one, brief=invariant is None)


def main() -> None:
    """Entry point of `hicache-fsm`."""
    app()
