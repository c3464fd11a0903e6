"""A configuration from bounds that somebody asks for: the rest is as small as the shipped configurations have it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from hicache_fsm.model.configurations import Configuration
from hicache_fsm.model.layout import LIMIT, ModelError


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for; None leaves a bound at its smallest honest value.

    `host_pages`, `pool` (the device pool; of nodes: the slots of both pools), `context`, `chain`, `trailing` and
    `anchors` are pages, `interval` passes, `attempts` an attempt's count with the first one included,
    `max_attempts` re-issues of one attempt.
    """

    requests: int | None = None
    attempts: int | None = None
    host_pages: int | None = None
    context: int | None = None
    anchors: tuple[int, ...] | None = None
    chain: int | None = None
    pool: int | None = None
    interval: int | None = None
    max_attempts: int | None = None
    nodes: int | None = None
    loaders: int | None = None
    holders: int | None = None
    ranks: int | None = None
    trailing: int | None = None

    @property
    def given(self) -> frozenset[str]:
        """The names of the bounds that are asked for."""
        return frozenset(each.name for each in fields(self) if getattr(self, each.name) is not None)


SYSTEMS: Final = ("admission", "node", "belief", "ranks")

SPEAKS_OF: Final[Mapping[str, frozenset[str]]] = {
    "admission": frozenset(
        {
            "requests", "attempts", "host_pages", "context", "anchors", "chain", "pool", "interval",
            "max_attempts",
        }
    ),
    "node": frozenset({"nodes", "loaders", "holders", "pool"}),
    "belief": frozenset({"chain", "trailing"}),
    "ranks": frozenset({"ranks", "interval", "max_attempts"}),
}  # fmt: skip
"""The bounds that each system has."""

MARKS: Final[Mapping[str, str]] = {
    "requests": "admission", "attempts": "admission", "host_pages": "admission", "context": "admission",
    "anchors": "admission", "nodes": "node", "loaders": "node", "holders": "node", "ranks": "ranks",
    "trailing": "belief",
}  # fmt: skip
"""The bounds that only one system has: asking for one asks for the system."""


def asked_for(wish: Wish, systems: Sequence[str] = ()) -> list[Configuration]:
    """A configuration for each of `systems`, or for those that the bounds speak of; admission if they do not say.

    Raises ModelError for an unknown system, a bound that none of them has, or one out of its range.
    """
    unknown = sorted(set(systems) - set(SYSTEMS))
    if unknown:
        raise ModelError(f"unknown system {', '.join(unknown)}: one of {', '.join(SYSTEMS)}")
    marked = [name for name in SYSTEMS if name in {MARKS[bound] for bound in wish.given if bound in MARKS}]
    chosen = [*systems] or marked or ["admission"]
    idle = sorted(wish.given - frozenset().union(*(SPEAKS_OF[name] for name in chosen)))
    if idle:
        named = ", ".join(f"--{bound.replace('_', '-')}" for bound in idle)
        raise ModelError(f"{named}: no such bound in {', '.join(chosen)}: add --system, or leave it out")
    _require_ranges(wish)
    return [_configuration(name, wish) for name in dict.fromkeys(chosen)]


def _configuration(system: str, wish: Wish) -> Configuration:
    bounds: dict[str, Any]
    constants: dict[str, int | bool] = {}
    match system:
        case "admission":
            bounds = _admission(wish)
            constants = _pace(wish, 1, 1)
        case "node":
            nodes = _or(wish.nodes, 2)
            pool = _or(wish.pool, nodes)
            if pool < nodes:
                raise ModelError(f"--pool {pool}: the {nodes} nodes begin with a slot each")
            bounds = {
                "nodes": nodes,
                "loaders": _or(wish.loaders, 2),
                "holders": _or(wish.holders, 2),
                "full": pool,
                "swa": pool,
            }
        case "belief":
            chain = _or(wish.chain, 3)
            bounds = {"chain": chain, "trailing": _or(wish.trailing, min(2, chain))}
            if bounds["trailing"] > chain:
                raise ModelError(f"--trailing {bounds['trailing']}: the chain has {chain} pages")
        case _:
            bounds = {"ranks": _or(wish.ranks, 2)}
            constants = _pace(wish, 2, 2)
    kind = "admission-disabled" if system == "admission" and constants["interval"] == 0 else system
    return Configuration(f"{kind}.asked", kind, "asked for", False, constants, bounds)


def _admission(wish: Wish) -> dict[str, Any]:
    requests, chain, context = _or(wish.requests, 2), _or(wish.chain, 1), _or(wish.context, 2)
    anchors = wish.anchors or tuple(1 + i % 2 for i in range(requests))
    if len(anchors) != requests:
        raise ModelError(f"--anchors names {len(anchors)} pins for {requests} requests: one for each")
    return {
        "requests": requests,
        "chain": chain,
        "host": _or(wish.host_pages, chain + 1),
        "device": _or(wish.pool, context + 2),
        "context": context,
        "anchors": list(anchors),
        "attempts": _or(wish.attempts, 1),
    }


def _pace(wish: Wish, interval: int, budget: int) -> dict[str, int | bool]:
    return {"interval": _or(wish.interval, interval), "max_attempts": _or(wish.max_attempts, budget)}


def _require_ranges(wish: Wish) -> None:
    least = {"host_pages": 0, "interval": 0, "max_attempts": 0, "pool": 0, "trailing": 0}
    # A variable for it goes up to one more, and sums of two must fit a byte.
    most = LIMIT - 2
    for bound in sorted(wish.given - {"anchors"}):
        value = getattr(wish, bound)
        if not least.get(bound, 1) <= value <= most:
            named = f"--{bound.replace('_', '-')}"
            raise ModelError(f"{named} {value}: from {least.get(bound, 1)} to {most}")
    if wish.anchors is not None and (min(wish.anchors, default=1) < 0 or sum(wish.anchors) > most):
        raise ModelError(f"--anchors: none below 0, {most} pages in all at most")


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
