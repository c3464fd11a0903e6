"""`hicache-fsm fuzz`: random runs of a cache for as long as wanted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hicache_fsm.cli.exits import Exit, bad_input, print_json, refuse
from hicache_fsm.cli.options import Json, check_known
from hicache_fsm.spec import load_spec

if TYPE_CHECKING:
    from hicache_fsm.suite.campaign import Campaign
    from hicache_fsm.suite.protocol import Target


def fuzz(
    target: Annotated[
        str, typer.Option(help="runtime, model, sglang-0.5.19 to sglang-0.5.23 or package.module:factory.")
    ] = "runtime",
    profile: Annotated[str, typer.Option(help="The rules of runtime and model.")] = "recommended",
    minutes: Annotated[float, typer.Option(min=0.01, help="How long.")] = 1.0,
    jobs: Annotated[int, typer.Option(min=1, help="Workers, each with caches of its own.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed draws the same runs.")] = 0,
    backend: Annotated[
        str, typer.Option(help="joblib's backend for the workers: loky, ray, dask ...; loky by default.")
    ] = "",
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--safe",
            help="Hold the cache to the reference model's word, or to the invariants alone; exact for the runtime "
            "under recommended by default.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder that gets a scenario file for each finding.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Drive a cache by random event sequences, and report what broke, each finding once and small."""
    from hicache_fsm.suite.campaign import run_campaign
    from hicache_fsm.suite.findings import write_finding
    from hicache_fsm.suite.protocol import UnsupportedError

    with bad_input():
        chosen = _target(target, profile)
        strict = exact if exact is not None else (target, profile) == ("runtime", "recommended")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        _register(backend)
        try:
            with _bar(minutes * 60) as tell:
                campaign = run_campaign(
                    chosen,
                    seconds=minutes * 60,
                    seed=seed,
                    jobs=jobs,
                    backend=backend,
                    exact=strict,
                    tell=tell,
                )
        except (ModuleNotFoundError, UnsupportedError, ValueError) as error:
            refuse(_mend(error))
        finally:
            stop = getattr(chosen, "stop", None)
            if stop is not None:
                stop()
        written = [write_finding(each, target, out) for each in campaign.findings.values()]
    if as_json:
        paths = [str(path) if path else None for path, _ in written]
        report = campaign.as_json(load_spec().machines["prefetch"])
        report["findings"] = [
            {**each, "scenario": text, "path": path}
            for each, (_, text), path in zip(report["findings"], written, paths, strict=True)
        ]
        print_json(report)
    else:
        again = f"{target} --profile {profile}" if target in ("runtime", "model") else target
        show_campaign(Console(), campaign, written, again)
    raise typer.Exit(Exit.VIOLATED if campaign.findings else Exit.HOLDS)


def show_campaign(
    console: Console, campaign: "Campaign", written: list[tuple[Path | None, str]], again: str
) -> None:
    """What was reached, then each finding with its scenario, or the command that drives it on target `again`."""
    table = load_spec().machines["prefetch"]
    coverage = campaign.coverage.as_json(table)
    rate = campaign.steps / max(campaign.seconds, 0.001)
    console.print(
        f"{campaign.target}, seed {campaign.seed}: {coverage['runs']:,} runs, {campaign.steps:,} events in "
        f"{campaign.seconds:.0f} s ({rate:,.0f}/s){', interrupted' if campaign.interrupted else ''}",
        highlight=False,
    )
    console.print(
        f"{coverage['reached']} of {coverage['changes']} changes of state in spec/prefetch.toml were seen",
        highlight=False,
    )
    if coverage["missing"]:
        console.print(f"  not seen: {', '.join(coverage['missing'])}", highlight=False, soft_wrap=True)
    for title, counts in (("state", coverage["states"]), ("exit", coverage["exits"])):
        told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        console.print(f"  by {title}: {told}", highlight=False, soft_wrap=True)
    if not campaign.findings:
        console.print("holds: nothing was found", style="bold")
        return
    findings = Table(box=None)
    for name in ("invariant", "exit", "events", "runs", "what"):
        findings.add_column(name, justify="right" if name in ("events", "runs") else "left")
    for (invariant, exit_), failure in campaign.findings.items():
        runs = sum(count for (one, _), count in campaign.runs_of.items() if one == invariant)
        findings.add_row(
            invariant, exit_, str(len(failure.events)), f"{runs:,}", escape(failure.problem.message)
        )
    console.print(findings)
    for path, text in written:
        console.print(
            f"  hicache-fsm scenarios {path} --target {again}" if path else f"\n{escape(text)}",
            highlight=False,
            soft_wrap=True,
        )
    count = len(campaign.findings)
    console.print(f"violated: {count} finding{'s' if count > 1 else ''}", style="bold red", highlight=False)


def _target(name: str, profile: str) -> "Target":
    from hicache_fsm.suite.protocol import UnsupportedError
    from hicache_fsm.suite.targets import target

    spec = load_spec()
    check_known("profile", [profile], spec.profiles)
    try:
        options: dict[str, Any] = {"spec": spec} if name == "runtime" else {}
        return target(name, profile, **options)
    except UnsupportedError as error:
        refuse(str(error))


def _register(backend: str) -> None:
    """Ray brings its own backend for joblib, which has to be announced."""
    if backend != "ray":
        return
    try:
        from ray.util.joblib import register_ray
    except ModuleNotFoundError:
        refuse("ray is not installed: pip install ray")
    register_ray()


def _mend(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "joblib":
        return "joblib is not installed: pip install 'hicache-fsm[fuzz]'"
    return str(error)


@contextmanager
def _bar(seconds: float) -> Iterator[Callable[["Campaign"], None]]:
    """A bar over the time on stderr, with what was found so far; nothing on a pipe."""
    console = Console(stderr=True)
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=seconds)
        table = load_spec().machines["prefetch"]

        def tell(campaign: "Campaign") -> None:
            reached = len(campaign.coverage.reached(table))
            text = f"{campaign.coverage.runs:,} runs, {reached} changes, {len(campaign.findings)} findings"
            bar.update(task, completed=campaign.seconds, description=text)

        yield tell
