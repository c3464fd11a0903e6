"""The command `record`."""

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hicache_fsm.cli.exits import Exit, bad_input, print_json, refuse
from hicache_fsm.cli.options import Json
from hicache_fsm.cli.render import progress, show_replay
from hicache_fsm.replay import judge_file
from hicache_fsm.sglang.modes import ALLOW, AUDIT_PASSES, MODE, Mode, Options
from hicache_fsm.sglang.record import EngineEndedError, StrictError
from hicache_fsm.sglang.record import record as record_log
from hicache_fsm.spec import load_spec


def record(
    sglang: Annotated[str, typer.Option(help="The SGLang version to run, 0.5.19 to 0.5.23.")],
    out: Annotated[Path | None, typer.Option(help="Where the event log goes; it is overwritten.")] = None,
    mode: Annotated[Mode | None, typer.Option(help="What the plugin does, see docs/plugin.md.")] = None,
    audit_passes: Annotated[
        int, typer.Option(min=0, help="A full audit every so many passes; 0: at rest only.")
    ] = 0,
    allow: Annotated[str, typer.Option(help="Invariants that strict only logs, separated by commas.")] = "",
    run: Annotated[
        list[str] | None, typer.Argument(help="After --: options of the run, see docs/harness.md.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a workload on a real SGLang on the CPU with the plugin, write its event log and judge it.

    Exit 1 if the log does not hold, strict mode raised, the engine ended, something is left that nobody owns, or the
    plugin switched itself off.
    """
    with bad_input():
        if out is None and mode is None:
            refuse("nothing to do: give --out LOG, --mode observe, enforce or strict, or both")
        if out is not None and not out.parent.is_dir():
            refuse(f"{out}: there is no folder {out.parent}: make it, or name another")
        spec = load_spec()
        unknown = sorted({name.strip() for name in allow.split(",") if name.strip()} - set(spec.invariants))
        if unknown:
            refuse(f"--allow: unknown invariant {', '.join(unknown)}; there are {', '.join(spec.invariants)}")
        plugin = {AUDIT_PASSES: str(audit_passes), ALLOW: allow} | ({MODE: str(mode)} if mode else {})
        verdict, told, raised = None, None, None
        with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as folder:
            report = Path(folder) / "report.json"
            try:
                Options.of(plugin)
                with progress(f"running SGLang {sglang}") as tell:
                    record_log(sglang, out, arguments=run or (), progress=tell, plugin=plugin, report=report)
                told = json.loads(report.read_text()) if report.exists() else None
            except EngineEndedError as error:
                _show_end(str(error), out, as_json)
                raise typer.Exit(Exit.VIOLATED) from None
            except StrictError as error:
                raised = str(error)
            except ValueError as error:
                refuse(str(error))
        if out is not None and raised is None:
            verdict = judge_file(spec, out)
    if as_json:
        judged = {} if verdict is None else verdict.as_json()
        print_json(judged | ({} if mode is None else {"plugin": told, "raised": raised}))
    else:
        if verdict is not None:
            show_replay(Console(), verdict)
        if mode is not None:
            _show(told, raised)
    off = told is not None and bool(told["off"])
    if off and not as_json:
        typer.echo(
            "the plugin switched itself off after a fault of its own: nothing is known of the rest of the run"
        )
    left = told is not None and bool(told["left"])
    violated = raised is not None or left or off or (verdict is not None and not verdict.holds)
    raise typer.Exit(Exit.VIOLATED if violated else Exit.HOLDS)


def _show_end(told: str, log: Path | None, as_json: bool) -> None:
    """How the engine ended, and where the log is that it wrote up to there."""
    written = log is not None and log.exists()
    if as_json:
        print_json({"ended": told, "log": str(log) if written else None})
        return
    typer.echo(told)
    if written:
        typer.echo(f"the log up to there: hicache-fsm replay --allow-truncated {log}")


def _show(told: dict[str, Any] | None, raised: str | None) -> None:
    if raised is not None:
        typer.echo(raised)
    if told is None:
        return

    def line(title: str, counts: dict[str, int]) -> None:
        if counts:
            typer.echo(
                f"  {title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
            )

    typer.echo(f"plugin, mode {told['mode']}: {told['audits']} full audits")
    line("storage calls gone wrong", told["faults"])
    line("aborted while", told["aborted_at"])
    line("found", told["findings"])
    line("repaired", told["repairs"])
    for left in told["left"]:
        typer.echo(f"  left: {left}")
    if not told["left"]:
        typer.echo("  nothing is left that nobody owns")
