"""From symbolic paths to actions."""

from collections.abc import Iterable

from hicache_fsm.model.expr import FALSE, Expr, maximum, minimum, variable
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action
from hicache_fsm.model.tables import Path, View


def start(layout: Layout) -> Path:
    """The path of no steps: every variable as it is."""
    return Path({each.name: variable(each.name) for each in layout.variables})


def actions(
    layout: Layout,
    name: str,
    event: str,
    subject: int,
    views: Iterable[View],
    effects: tuple[str, ...] = (),
) -> list[Action]:
    """One action for each view that some state can reach."""
    return [
        Action(
            name, event, subject, view.path.condition, _updates(layout, view.path), view.path.rows, effects,
            view.parameters,
        )
        for view in views
        if view.path.condition != FALSE
    ]  # fmt: skip


def _updates(layout: Layout, path: Path) -> dict[str, Expr]:
    return {
        each.name: _bounded(each, path.values[each.name])
        for each in layout.variables
        if path.values[each.name] != variable(each.name)
    }


def _bounded(each: Variable, value: Expr) -> Expr:
    return maximum(minimum(value, each.high), each.low) if each.saturating else value
