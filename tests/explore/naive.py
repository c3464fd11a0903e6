"""A search of a system the plain way: dictionaries, a queue, and Python integers."""

from collections import deque
from collections.abc import Callable

from hicache_fsm.model import System
from hicache_fsm.model.expr import FALSE, TRUE, Expr, walk

State = tuple[int, ...]
INFIX = {"eq": "==", "le": "<=", "and": "and", "or": "or", "add": "+", "sub": "-"}


def naive(system: System) -> tuple[int, int, int]:
    """Distinct states, depth in steps, and distinct (state, next state) pairs."""
    names = [variable.name for variable in system.layout.variables]
    steps = [
        (
            _function(names, action.guard),
            {names.index(n): _function(names, e) for n, e in action.updates.items()},
        )
        for action in system.actions
    ]
    start = tuple(system.initial[name] for name in names)
    depth = {start: 0}
    edges = set()
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for guard, updates in steps:
            if guard(state):
                after = list(state)
                for place, value in updates.items():
                    after[place] = value(state)
                successor = tuple(after)
                edges.add((state, successor))
                if successor not in depth:
                    depth[successor] = depth[state] + 1
                    queue.append(successor)
    return len(depth), max(depth.values()), len(edges)


def _function(names: list[str], root: Expr) -> Callable[[State], int]:
    place: dict[Expr, str] = {}
    lines = []
    for node in walk([root]):
        args = [place[arg] for arg in node.args] if node.op != "const" else []
        if node.op == "var":
            text = f"state[{names.index(str(node.value))}]"
        elif node.op == "const":
            text = str(node == TRUE) if node in (TRUE, FALSE) else str(node.value)
        elif node.op in INFIX:
            text = f"{args[0]} {INFIX[node.op]} {args[1]}"
        elif node.op == "where":
            text = f"{args[1]} if {args[0]} else {args[2]}"
        else:
            text = f"{node.op}({', '.join(args)})"
        place[node] = f"v{len(place)}"
        lines.append(f"    {place[node]} = {text}")
    scope: dict[str, Callable[[State], int]] = {}
    exec("def f(state):\n" + "\n".join(lines) + f"\n    return {place[root]}", scope)
    return scope["f"]
