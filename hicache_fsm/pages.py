"""The pages of docs/ that are generated from the spec."""

from hicache_fsm.machine import markdown, mermaid
from hicache_fsm.spec import Invariant, Machine, Spec


def machines_page(spec: Spec) -> str:
    """docs/machines.md: every machine with its states, diagram and transitions."""
    parts = ["# The machines\n\nGenerated from `spec/*.toml` by `make docs`.\n"]
    parts += [_machine(machine) for machine in spec.machines.values()]
    return "\n".join(parts)


def invariants_page(spec: Spec) -> str:
    """docs/invariants.md: every invariant with its reason, its witness, and the profiles that break it."""
    parts = [
        "# The invariants\n\nGenerated from `spec/invariants.toml` and the profiles by `make docs`. "
        "A witness is a change of the spec under which `check` finds the invariant violated.\n"
    ]
    parts += [_invariant(spec, each) for each in spec.invariants.values()]
    return "\n".join(parts)


def _machine(machine: Machine) -> str:
    lines = [f"## {machine.name}", "", f"{machine.about} One instance per {', '.join(machine.key)}.", ""]
    lines += ["| state | | stands for, in SGLang |", "|---|---|---|"]
    for state in machine.states.values():
        upstream = "; ".join(f"{v}: {', '.join(fields)}" for v, fields in (state.upstream or {}).items())
        lines.append(
            f"| `{state.name}`{' (terminal)' if state.terminal else ''} | {state.about} | {upstream} |"
        )
    lines += ["", "| event | by | |", "|---|---|---|"]
    lines += [f"| `{e.name}` | {e.by} | {e.about} |" for e in machine.events.values()]
    if machine.guards:
        lines += ["", "| guard | kind | |", "|---|---|---|"]
        lines += [f"| `{g.name}` | {g.kind} | {g.about} |" for g in machine.guards.values()]
    if machine.effects:
        lines += ["", "| effect | |", "|---|---|"]
        lines += [f"| `{e.name}` | {e.about} |" for e in machine.effects.values()]
    lines += ["", "```mermaid", mermaid(machine).rstrip(), "```", "", markdown(machine)]
    return "\n".join(lines)


def _invariant(spec: Spec, one: Invariant) -> str:
    lines = [
        f"## {one.number}. {one.id}",
        "",
        f"**{one.sentence}** ({one.kind}; {', '.join(one.machines)}; checked by {', '.join(one.checked)})",
        "",
        f"Why: {one.why}",
        "",
        f"Witness: {one.witness}.",
    ]
    for profile in spec.profiles.values():
        for finding in profile.findings:
            if finding.invariant == one.id:
                reports = f" ({', '.join(finding.upstream)})" if finding.upstream else ""
                lines += ["", f"Broken by `{profile.name}`{reports}: {finding.why}"]
    return "\n".join([*lines, ""])
