"""The command line: the app, its commands, and the small ones among them."""

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hicache_fsm.cli.check_commands import check, explain
from hicache_fsm.cli.conform_commands import conform
from hicache_fsm.cli.exits import Exit, bad_input, print_json
from hicache_fsm.cli.follow_commands import follow
from hicache_fsm.cli.fuzz_commands import fuzz
from hicache_fsm.cli.mutate_commands import mutate
from hicache_fsm.cli.options import Json, SpecDir, check_known
from hicache_fsm.cli.prove_commands import prove
from hicache_fsm.cli.ranks_commands import ranks
from hicache_fsm.cli.record_commands import record
from hicache_fsm.cli.render import progress, show_replay
from hicache_fsm.cli.scenarios_commands import scenarios
from hicache_fsm.cli.tlc_commands import Java, tlc, tlc_verdicts
from hicache_fsm.machine import markdown, mermaid
from hicache_fsm.pages import machines_page
from hicache_fsm.replay import judge_file
from hicache_fsm.spec import load_spec

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Check, replay and record the lifecycles behind SGLang's HiCache storage prefetch. "
    "Exit codes: 0 holds, 1 violated, 2 bad input, 3 undetermined.",
)


class Form(StrEnum):
    """How `diagram` draws a machine."""

    mermaid = "mermaid"
    table = "table"


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
        check_known("machine", [machine] if machine is not None else (), spec.machines)
    if as_json:
        chosen_machines = [spec.machines[machine]] if machine else list(spec.machines.values())
        print_json({one.name: [asdict(row) for row in one.transitions] for one in chosen_machines})
    elif machine is None:
        typer.echo(machines_page(spec), nl=False)
    else:
        chosen = spec.machines[machine]
        typer.echo(mermaid(chosen) if form is Form.mermaid else markdown(chosen))


COMMANDS = (
    check, explain, diagram, prove, mutate, tlc, conform, follow, scenarios, fuzz, record, replay, ranks,
)  # fmt: skip

for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Entry point of `hicache-fsm`."""
    app()
