"""What the commands print for people."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from hicache_fsm.bounded import Count, Searched
from hicache_fsm.check import Report, Standing
from hicache_fsm.explore import Explanation, Trace
from hicache_fsm.replay import Verdict, Violation
from hicache_fsm.spec import Invariant, Spec

COLOURS = {"held": "green", "upstream finding": "yellow", "undetermined": "magenta"}


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr that shows the last thing it was told; nothing but that on a pipe."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing)
        yield lambda text: bar.update(task, description=f"{doing}: {text}")


def show_check(console: Console, report: Report) -> None:
    """The spec's size, per profile the searches and each invariant's verdict, then the logs."""
    console.print(report.spec_line, highlight=False)
    for profile in report.profiles:
        console.print()
        table = Table(title=f"profile {profile.name}", title_justify="left", title_style="bold", box=None)
        for name in ("system", "states", "steps", "depth", "seconds", "states/s"):
            table.add_column(name, justify="left" if name == "system" else "right")
        for search in profile.searches:
            table.add_row(
                search.configuration,
                f"{search.distinct:,}",
                f"{search.generated:,}",
                str(search.depth),
                f"{search.seconds:.2f}",
                f"{search.states_per_second:,.0f}",
            )
        console.print(table)
        for standing in profile.standings:
            _show_standing(console, standing)
    for verdict in report.logs:
        console.print()
        show_replay(console, verdict)
    console.print()
    console.print(report.conclusion, style="bold")


def _show_standing(console: Console, standing: Standing) -> None:
    colour = COLOURS.get(standing.verdict, "bold red")
    line = f"  {standing.invariant:<18} [{colour}]{standing.verdict:<16}[/{colour}]  {escape(standing.why)}"
    console.print(line, highlight=False, soft_wrap=True)
    if standing.explained is not None:
        show_explanation(console, standing.explained)
    elif standing.trace is not None and standing.verdict != "upstream finding":
        show_trace(console, standing.trace)


def show_trace(console: Console, trace: Trace) -> None:
    """A counterexample as a table of steps: what happened, and what it changed."""
    table = Table(box=None, pad_edge=True)
    table.add_column("step", justify="right")
    table.add_column("action")
    table.add_column("changes", overflow="fold")
    for row in trace.rows():
        table.add_row(*map(escape, row))
    console.print(table)


def show_explanation(console: Console, found: Explanation) -> None:
    """A counterexample's steps with what each is for, the finding that it is, and the code behind its states."""
    said = f"{found.profile} in {found.configuration}, {len(found.trace)} steps: {found.trace.about}"
    console.print(
        f"[bold]{found.invariant.id}[/bold]: {found.invariant.sentence}", highlight=False, soft_wrap=True
    )
    console.print(f"  {escape(said)}", highlight=False, soft_wrap=True)
    if found.finding is not None:
        reports = f" ({', '.join(found.finding.upstream)})" if found.finding.upstream else ""
        console.print(
            f"  upstream finding{reports}: {escape(found.finding.why)}", highlight=False, soft_wrap=True
        )
    table = Table(box=None, pad_edge=True)
    table.add_column("step", justify="right")
    for name in ("action", "changes", "matters for"):
        table.add_column(name, overflow="fold")
    for row in found.rows:
        table.add_row(*map(escape, row))
    console.print(table)
    if found.places:
        console.print(f"  what stands for these states in SGLang {found.version}:", highlight=False)
    for place in found.places:
        console.print(f"    {place.state}: {escape('; '.join(place.code))}", highlight=False, soft_wrap=True)


def show_searched(console: Console, found: Searched) -> None:
    """One bounded search: its size, what other engines count, each invariant, each counterexample explained."""
    if found.refused:
        console.print(
            f"  [magenta]refused[/magenta]: {escape(found.refused)}", highlight=False, soft_wrap=True
        )
        return
    result = found.result
    if result is None:
        return
    cut = "" if result.complete else ", [magenta]cut[/magenta]"
    if found.interchangeable:
        console.print(
            f"  interchangeable variables: {found.interchangeable}", highlight=False, soft_wrap=True
        )
    all_of = "" if result.represented is None else f" that stand for {result.represented:,}"
    console.print(
        f"  found: {result.distinct:,} states{all_of}, {result.generated:,} steps, depth {result.depth}{cut}, "
        f"in {result.seconds:.2f} s ({result.engine}, {result.bytes_per_state:.1f} bytes a state)",
        highlight=False,
        soft_wrap=True,
    )
    for count in found.counts:
        console.print(f"  {_count(count)}", highlight=False, soft_wrap=True)
    for standing in found.standings:
        _show_standing(console, replace(standing, trace=None))
    for explanation in found.explained:
        show_explanation(console, explanation)
    for live in found.live:
        failed = "[bold red]fails[/bold red]" if live in found.broken else "[yellow]upstream finding[/yellow]"
        word = "[green]holds[/green]" if live.holds else failed
        console.print(f"  eventually {live.liveness.about}: {word}", highlight=False, soft_wrap=True)
        if live.lasso is not None:
            show_trace(console, live.lasso.trace())
    if found.live_refused:
        console.print(
            f"  eventually: [magenta]undetermined[/magenta], {escape(found.live_refused)}", soft_wrap=True
        )


def _count(count: Count) -> str:
    name = {"tlc": "TLC", "spin": "SPIN"}.get(count.engine, count.engine)
    if not count.agrees:
        word = "[magenta]no count[/magenta]" if count.distinct is None else "[bold red]DIFFERS[/bold red]"
        return f"{name}: {word}: {escape(count.problem)}"
    depth = "" if count.depth is None else f", depth {count.depth}"
    judged = f", {len(count.judged)} invariants hold there, too" if count.judged else ""
    said = f"{count.distinct:,} states{depth}, in {count.seconds:.2f} s{judged}"
    return f"{name}: [green]agrees[/green]: {said}"


def show_replay(console: Console, verdict: Verdict) -> None:
    """One log: what it held, which states it never reached, and each violation with the attempt's history."""
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(verdict.counts.items()))
    origin = f"{verdict.source} {verdict.version}".strip()
    console.print(
        f"[bold]log[/bold] {verdict.path}: {origin}, {verdict.mode}, judged by profile {verdict.profile}",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        f"  {verdict.events:,} events in {verdict.passes:,} passes: {counts}", highlight=False, soft_wrap=True
    )
    reached = ", ".join(f"{state} {count:,}" for state, count in verdict.states.most_common() if count)
    console.print(f"  states: {reached}", highlight=False, soft_wrap=True)
    for state, needs in verdict.not_reached.items():
        console.print(f"  not reached: {state}, which {escape(needs)}", highlight=False, soft_wrap=True)
    for rule, count in sorted(verdict.findings.items()):
        console.print(f"  {rule}: [yellow]upstream finding[/yellow], seen {count} times", highlight=False)
    if not verdict.closed:
        console.print("  [yellow]no trailer[/yellow]: the writer did not close this log", highlight=False)
    for violation in verdict.unexpected:
        show_violation(console, verdict.path, violation)
    word = (
        "[green]holds[/green]"
        if verdict.holds
        else f"[bold red]{len(verdict.unexpected)} violations[/bold red]"
    )
    console.print(f"  verdict: {word}", highlight=False)


def show_violation(console: Console, path: str, violation: Violation) -> None:
    """Which line, which rule, and that attempt's history."""
    console.print(
        f"  [bold red]{violation.rule}[/bold red] {path}:{violation.line}: {escape(violation.message)}",
        highlight=False,
        soft_wrap=True,
    )
    for step in violation.history:
        console.print(f"      {escape(step)}", highlight=False, soft_wrap=True)


def show_invariant(console: Console, spec: Spec, invariant: Invariant, *, brief: bool) -> None:
    """An invariant: its sentence, why it should hold, its witness, where it is checked, who breaks it."""
    console.print(
        f"[bold]{invariant.number}. {invariant.id}[/bold]  {invariant.sentence}",
        highlight=False,
        soft_wrap=True,
    )
    if brief:
        return
    lines = {
        "kind": invariant.kind,
        "machines": ", ".join(invariant.machines),
        "why it should hold": invariant.why,
        "witness": f"{invariant.witness}: `check` then finds it violated",
        "checked by": ", ".join(invariant.checked),
        "searched in": ", ".join(invariant.systems),
    }
    for name, text in lines.items():
        console.print(f"  {name}: {escape(text)}", highlight=False, soft_wrap=True)
    for profile in spec.profiles.values():
        for finding in profile.findings:
            if finding.invariant == invariant.id:
                reports = f" ({', '.join(finding.upstream)})" if finding.upstream else ""
                console.print(
                    f"  broken by {profile.name}{reports}: {finding.why}", highlight=False, soft_wrap=True
                )
