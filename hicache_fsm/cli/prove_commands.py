"""`hicache-fsm prove`: inductive proofs for every value of the quantities."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hicache_fsm.cli.exits import Exit, bad_input, needing, print_json, refuse
from hicache_fsm.cli.options import Json, SpecDir, check_known
from hicache_fsm.cli.render import progress
from hicache_fsm.spec import load_spec

if TYPE_CHECKING:
    from hicache_fsm.prove import Proof, ProofReport

COLOURS = {"proved": "green", "upstream finding": "yellow", "undetermined": "magenta"}


def prove(
    invariants: Annotated[
        list[str] | None, typer.Argument(help="Invariants to prove; without one, all that have a proof.")
    ] = None,
    profile: Annotated[str, typer.Option(help="The rules to prove them under.")] = "recommended",
    requests: Annotated[int, typer.Option(min=1, max=4, help="Prove it for 1 to this many requests.")] = 2,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds a question may take: undetermined.")
    ] = 20.0,
    as_json: Json = False,
    spec_dir: SpecDir = None,
) -> None:
    """Prove invariants by induction, for all pool sizes, lengths, caps, intervals and budgets."""
    with needing("prove"):
        from hicache_fsm.prove import PROVABLE
        from hicache_fsm.prove import prove as run
    with bad_input():
        spec = load_spec(spec_dir)
        check_known("profile", [profile], spec.profiles)
        unknown = sorted(set(invariants or ()) - set(PROVABLE))
        if unknown:
            refuse(f"no proof of {', '.join(unknown)}; there is one of {', '.join(PROVABLE)}")
        with progress("proving") as tell:
            report = run(
                spec, profile, invariants or PROVABLE, requests=requests, timeout_s=timeout, tell=tell
            )
    if as_json:
        print_json(report.as_json())
    else:
        show_proofs(Console(), report)
    raise typer.Exit(Exit(report.exit_code))


def show_proofs(console: Console, report: "ProofReport") -> None:
    """Each invariant's verdict, and for one that is not proved the step that breaks it."""
    console.print(f"profile {report.profile}: {', '.join(report.systems)}", highlight=False, soft_wrap=True)
    for proof in report.proofs:
        _show_proof(console, proof)
    words = {0: "holds", 1: "NOT PROVED", 3: "UNDETERMINED"}
    proved = sum(proof.verdict == "proved" for proof in report.proofs)
    known = sum(proof.verdict == "upstream finding" for proof in report.proofs)
    found = f", {known} upstream finding{'s' if known > 1 else ''}," if known else ""
    line = (
        f"{words[report.exit_code]}: {proved} of {len(report.proofs)} proved{found} in {report.seconds:.1f} s"
    )
    console.print(line, style="bold", highlight=False)


def _show_proof(console: Console, proof: "Proof") -> None:
    colour = COLOURS.get(proof.verdict, "bold red")
    line = f"  {proof.invariant:<18} [{colour}]{proof.verdict:<16}[/{colour}]  {escape(proof.why)}"
    console.print(line, highlight=False, soft_wrap=True)
    shown = proof.broken.counterexample if proof.broken else None
    if shown is not None:
        for text in shown.lines():
            console.print(f"      {escape(text)}", highlight=False, soft_wrap=True)
