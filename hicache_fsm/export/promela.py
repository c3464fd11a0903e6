"""A system as Promela, for SPIN: a third engine that shares no code with the other two.

One process loops over the actions: a guard, then all updates at once.  Guards and updates are embedded C
functions: in them a value that occurs often has a name, which an expression of Promela cannot give it, and
spelt out in full some guards would run to megabytes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from hicache_fsm.model.expr import FALSE, TRUE, Expr, walk
from hicache_fsm.model.system import Action, System

SIGNS: Mapping[str, str] = {"eq": "==", "le": "<=", "and": "&&", "or": "||", "add": "+", "sub": "-"}


def promela(system: System) -> str:
    """The model's text.

    Check it with `spin -a` and `cc -O2 -DSAFETY -DNOREDUCE -DNOFAIR`; then "states, stored" are the system's
    distinct states.
    """
    names = _names(system)
    lines = [
        f"/* {system.name} ({system.configuration}) under the profile {system.profile}, by hicache-fsm. */",
        "",
    ]
    for each in system.layout.variables:
        kind = "byte" if each.low >= 0 else "short"
        lines.append(
            f"{kind} {names[each.name]} = {system.initial[each.name]}; /* {each.low}..{each.high} */"
        )
    lines.append("")
    for number, action in enumerate(system.actions):
        # A block each: SPIN bounds a block's length.
        for function in _functions(number, action, names):
            lines += ["c_code {", *function, "}"]
    lines += ["", "active proctype system() {", "end:", "    do"]
    for number, action in enumerate(system.actions):
        step = f"c_expr {{ GUARD_{number} }} -> c_code {{ update_{number}(); }}"
        lines.append(f"    :: d_step {{ {step} }} /* {action.name} */")
    lines += ["    od", "}", ""]
    return "\n".join(lines)


def _names(system: System) -> dict[str, str]:
    """A C name for each variable."""
    names: dict[str, str] = {}
    for each in system.layout.variables:
        name = re.sub(r"\W", "_", each.name)
        # Prefixed, so that no variable is called like a word of Promela, C or SPIN.
        names[each.name] = f"x_{name}" if f"x_{name}" not in names.values() else f"x{len(names)}_{name}"
    return names


def _functions(number: int, action: Action, names: Mapping[str, str]) -> Iterator[list[str]]:
    place: dict[Expr, str] = {}
    body = [*_statements([action.guard], names, place), f"    return {place[action.guard]};"]
    # SPIN takes a call for a side effect: it is shown a name instead.
    yield [f"static int guard_{number}(void) {{", *body, "}", f"\\#define GUARD_{number} guard_{number}()"]
    place = {}
    body = [*_statements(action.updates.values(), names, place)]
    body += [f"    now.{names[name]} = {place[value]};" for name, value in action.updates.items()]
    yield [f"static void update_{number}(void) {{", *body, "}"]


def _statements(roots: Iterable[Expr], names: Mapping[str, str], place: dict[Expr, str]) -> Iterator[str]:
    """Declares every value that `roots` need; old values are read before any is written."""
    for node in walk(roots):
        args = [place[arg] for arg in node.args] if node.op != "const" else []
        match node.op:
            case "const":
                place[node] = str({TRUE: 1, FALSE: 0}.get(node, int(node.value)))
                continue
            case "var":
                text = f"now.{names[str(node.value)]}"
            case "not":
                text = f"!{args[0]}"
            case "where":
                text = f"{args[0]} ? {args[1]} : {args[2]}"
            case "min":
                text = f"{args[0]} < {args[1]} ? {args[0]} : {args[1]}"
            case "max":
                text = f"{args[0]} > {args[1]} ? {args[0]} : {args[1]}"
            case _:
                text = f"{args[0]} {SIGNS[node.op]} {args[1]}"
        place[node] = f"v{len(place)}"
        yield f"    const int {place[node]} = {text};"
