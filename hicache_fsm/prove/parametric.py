"""The bounded systems with their quantities left open: the same tables, with variables in place of sizes.

What stays bounded is how many requests, nodes and load-backs there are.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from hicache_fsm.model.admission.actions import Steps
from hicache_fsm.model.admission.checks import Checks
from hicache_fsm.model.admission.meaning import admission_tables
from hicache_fsm.model.admission.scope import Scope, initial, layout
from hicache_fsm.model.build import start
from hicache_fsm.model.expr import Expr, maximum, minimum, number, variable
from hicache_fsm.model.layout import Layout
from hicache_fsm.model.node import Scope as NodeScope
from hicache_fsm.model.node import node_system
from hicache_fsm.model.system import Action, StateCheck, StepCheck
from hicache_fsm.spec.types import Constants, Spec


@dataclass(frozen=True, slots=True)
class Parametric:
    """A transition system for every value of its parameters that `assumptions` admit.

    `parameters` says in words what each stands for; those in `choices` are chosen anew by every step.
    """

    name: str
    parameters: Mapping[str, str]
    assumptions: tuple[Expr, ...]
    choices: frozenset[str]
    layout: Layout
    initial: Mapping[str, Expr]
    actions: tuple[Action, ...]
    states: tuple[StateCheck, ...]
    steps: tuple[StepCheck, ...] = ()


class AnyPace(Constants):
    """Constants whose interval and budget are expressions; the interval is at least 1, so retries are on."""

    __slots__ = ()

    @property
    def retries(self) -> bool:
        """Whether misses are paced: unless the path is dense."""
        return not self.dense

    @property
    def arms(self) -> bool:
        """Whether a miss raises a marker."""
        return not self.dense

    @property
    def sweeps(self) -> bool:
        """Whether passes sweep markers."""
        return not self.dense


class AnySize(Scope):
    """A scope whose sizes are expressions."""

    __slots__ = ()

    @property
    def cap(self) -> int:
        """`rules.anchor_cap`, where `share` is the fraction of the device in whole pages."""
        free = variable("device") - variable("context") - variable("slack")
        return cast(int, maximum(number(0), minimum(variable("share"), free)))

    @property
    def retracts(self) -> bool:
        """The number of attempts is open, so there may be another one."""
        return True

    @property
    def reads(self) -> list[int]:
        """One cut, after any number of pages."""
        return [cast(int, variable("read"))]

    def due(self, waited: Expr) -> Expr:
        """`rules.retry_due`, for an interval of 1 or more."""
        return waited.ge(self.constants.interval)


ADMISSION_PARAMETERS: Mapping[str, str] = {
    "chain": "pages of the prefix chain",
    "host": "pages of the host pool",
    "device": "pages of the device pool",
    "context": "pages of the largest context",
    "share": "the pin fraction of the device, in whole pages",
    "slack": "pages beyond the context that the cap leaves free",
    "interval": "passes between a miss and its re-issue",
    "max_attempts": "re-issues per attempt",
    "attempts": "attempts per request, the first included",
    "read": "pages read before a cut",
}


def any_scope(rules: Constants, requests: int) -> Scope:
    """The bounds of `requests` requests with every size, the interval and the budget left open.

    With the interval at 0 in `rules`, retries stay off.
    """
    sizes: dict[str, Any] = {
        name: variable(name) for name in ("chain", "host", "device", "context", "attempts")
    }
    sizes["anchors"] = tuple(variable(f"anchor{i}") for i in range(requests))
    return AnySize(any_pace(rules), requests, **sizes)


def any_pace(rules: Constants) -> Constants:
    """The same rules with the budget left open, and the interval unless it is 0."""
    paced: dict[str, Any] = {**asdict(rules), "max_attempts": variable("max_attempts")}
    if not rules.interval:
        return Constants(**paced)
    return AnyPace(**{**paced, "interval": variable("interval")})


def admission_for_all(spec: Spec, scope: Scope, name: str) -> Parametric:
    """The admission system of a scope whose sizes are open.

    The slack that the profile fixes stays a minimum, if there is any; without it, `slack` is 0.
    """
    rules, requests = scope.constants, scope.requests
    anchors = tuple(f"anchor{i}" for i in range(requests))
    meant = {**ADMISSION_PARAMETERS, **dict.fromkeys(anchors, "pages that the request's pin holds")}
    if not rules.interval:
        del meant["interval"]
    named = Scope(with_numbers(rules), requests, 2, 2, 2, 1, (2,) * requests, 3)
    prefetch, pin = spec.machines["prefetch"], spec.machines["pin"]
    variables = without_ends(layout(named, prefetch, pin))
    begin = start(variables)
    checks = Checks(scope, prefetch, pin, begin)
    values = {each: number(value) for each, value in initial(named, prefetch, pin).items()}
    return Parametric(
        name,
        meant,
        _admission_assumptions(rules, anchors),
        frozenset({"read"}),
        variables,
        {**values, "host_free": variable("host")},
        Steps(scope, admission_tables(spec, scope), variables, begin).all(),
        checks.states(),
        checks.steps(),
    )


def _admission_assumptions(rules: Constants, anchors: tuple[str, ...]) -> tuple[Expr, ...]:
    least = {"chain": 1, "context": 1, "interval": 1, "attempts": 1}
    counted = ("chain", "host", "device", "context", "share", "interval", "max_attempts", "attempts", "read")
    slack = variable("slack")
    return (
        *(variable(name).ge(least.get(name, 0)) for name in (*counted, *anchors)),
        variable("share").le(variable("device")),
        slack.ge(rules.headroom_slack) if rules.headroom_slack else slack.eq(0),
    )


def with_numbers(rules: Constants) -> Constants:
    """The same rules with numbers for what is open, which only name the variables' ranges."""
    numbers: dict[str, Any] = {**asdict(rules), "interval": 2, "max_attempts": 2}
    return Constants(**numbers)


def nodes_for_all(spec: Spec, profile: str, nodes: int = 2, loaders: int = 2) -> Parametric:
    """The node system with pools of any size that hold its nodes, and any number of holders."""
    smallest = NodeScope(nodes, loaders, 1, nodes, nodes)
    name = f"{nodes} nodes"
    open_layout = without_ends(node_system(spec, profile, name, name, smallest).layout)
    sizes: dict[str, Any] = {size: variable(size) for size in ("holders", "full", "swa")}
    system = node_system(spec, profile, name, name, NodeScope(nodes, loaders, **sizes), open_layout)
    return Parametric(
        name,
        {"full": "slots of the full pool", "swa": "slots of the SWA pool", "holders": "holders of a node"},
        (variable("full").ge(nodes), variable("swa").ge(nodes), variable("holders").ge(1)),
        frozenset(),
        open_layout,
        {name: value if isinstance(value, Expr) else number(value) for name, value in system.initial.items()},
        system.actions,
        system.states,
    )


def without_ends(bounded: Layout) -> Layout:
    """The same variables, none of which stops at an end of its range: nothing hides behind a bound."""
    return Layout(replace(each, saturating=False) for each in bounded.variables)
