"""Pictures and tables of a machine, for documentation."""

from collections.abc import Iterable

from hicache_fsm.spec.types import Machine, Transition


def mermaid(machine: Machine) -> str:
    """The machine as a Mermaid `stateDiagram-v2`, one edge per row: `event [guards] / effects`."""
    lines = ["stateDiagram-v2", f"    [*] --> {machine.initial}"]
    lines += [f"    {row.source} --> {row.dest} : {_edge(row)}" for row in machine.transitions]
    lines += [f"    {name} --> [*]" for name, state in machine.states.items() if state.terminal]
    return "\n".join(lines) + "\n"


def markdown(machine: Machine) -> str:
    """The machine's transitions as a Markdown table; rows that differ only in their source share a line."""
    sources: dict[tuple[str, str, str, str, str], list[str]] = {}
    for row in machine.transitions:
        dest = "unchanged" if row.source == row.dest else f"`{row.dest}`"
        key = (row.event, _code(map(str, row.guard), " "), dest, _code(row.effects, ", "), row.why)
        sources.setdefault(key, []).append(f"`{row.source}`")
    lines = ["| event | from | if | to | then | why |", "|---|---|---|---|---|---|"]
    for (event, guard, dest, effects, why), origin in sources.items():
        cells = (f"`{event}`", ", ".join(origin), guard, dest, effects, why)
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _edge(row: Transition) -> str:
    guard = f" [{' '.join(map(str, row.guard))}]" if row.guard else ""
    effects = f" / {', '.join(row.effects)}" if row.effects else ""
    return row.event + guard + effects


def _code(names: Iterable[str], separator: str) -> str:
    return separator.join(f"`{name}`" for name in names)
