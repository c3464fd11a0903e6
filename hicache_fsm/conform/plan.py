"""Which configurations are compared, between whom, and how closely."""

from dataclasses import dataclass
from typing import Final

from hicache_fsm.model import Configuration, load_configurations

EXTRA: Final = (
    Configuration(
        "belief.short",
        "belief",
        "Two pages with one trailing auxiliary one: the fewest of which one is keyed and one is not.",
        False,
        {},
        {"chain": 2, "trailing": 1},
    ),
    Configuration(
        "admission-disabled.parked",
        "admission-disabled",
        "Two requests for one host page, and pins that fit one at a time: a parked hit lends its pin to the other.",
        False,
        {"interval": 0, "max_attempts": 1},
        {"requests": 2, "chain": 1, "host": 1, "device": 4, "context": 2, "anchors": [1, 1], "attempts": 1},
    ),
    Configuration(
        "admission.single",
        "admission",
        "One request with two pages and two attempts: a partial hit, a second question, an older orphan.",
        False,
        {"interval": 2, "max_attempts": 1},
        {"requests": 1, "chain": 2, "host": 2, "device": 4, "context": 2, "anchors": [1], "attempts": 2},
    ),
)
"""Configurations for comparisons only: small enough to drive the runtime over in seconds."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A configuration and a profile; `edges` compares labelled edges and not counts only, `runtime` takes it in.

    `quick` ones are compared without being asked for.
    """

    configuration: str
    profile: str = "recommended"
    edges: bool = True
    runtime: bool = True
    quick: bool = True


PLAN: Final = (
    Comparison("node.two"),
    Comparison("node.three"),
    Comparison("belief.short"),
    Comparison("admission.single"),
    Comparison("admission-disabled.interval"),
    Comparison("ranks.two", runtime=False),
    Comparison("belief.chain", runtime=False),
    Comparison("belief.chain", quick=False),
    Comparison("admission.alone", quick=False),
    Comparison("admission-disabled.revoking", quick=False),
    Comparison("admission-disabled.parked", quick=False),
    Comparison("admission.alone", "sglang-0.5.23", runtime=False, quick=False),
    Comparison("admission.alone", "seed", runtime=False, quick=False),
    Comparison("admission.pair", edges=False, runtime=False, quick=False),
    Comparison("admission.retracted", "sglang-0.5.23", edges=False, runtime=False, quick=False),
)


def configurations() -> dict[str, Configuration]:
    """Every configuration by its name, the comparisons' own included."""
    return {**{each.name: each for each in EXTRA}, **load_configurations()}
