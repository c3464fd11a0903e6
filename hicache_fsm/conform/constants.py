"""A system's bounds and profile as a TLC cfg, so that no hand-written one can drift from them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from hicache_fsm.model.admission.scope import Scope as AdmissionScope
from hicache_fsm.model.belief import Scope as BeliefScope
from hicache_fsm.model.node import Scope as NodeScope
from hicache_fsm.model.ranks import Scope as RanksScope
from hicache_fsm.spec import Constants

Scope = AdmissionScope | BeliefScope | NodeScope | RanksScope

MODULE: Final = "Conform"
"""The generated module: the bounds that a cfg cannot spell."""

PROFILE: Final[Mapping[str, tuple[str, ...]]] = {
    "MCAdmission": (
        "interval", "max_attempts", "dense", "marks_when_disabled", "sweeps_when_disabled", "arms_too_short",
        "arms_limited", "arms_cut", "spends_unasked", "parks", "parks_pinned", "retries_failed",
        "immediate_known_hit", "requeries_tail", "requeries_lost_match", "head_rule", "leaky_door", "scope",
        "resets_budget", "resets_under", "pins_early", "headroom_slack",
    ),
    "MCBelief": ("believes_failed", "forgets_detached"),
    "MCRanks": ("interval", "max_attempts", "arms_limited", "spends_unasked", "pacing", "agreed_drains"),
    "MCNode": (),
}  # fmt: skip
"""The constants of a profile that a module has under their own names."""


def generated(base: str, scope: Scope, constants: Constants) -> dict[str, str]:
    """The module and the cfg that give `base` these bounds, by file name; nothing but the state space is asked for."""
    plain = {_camel(name): _value(getattr(constants, name)) for name in PROFILE[base]}
    defined: dict[str, str] = {}
    match scope:
        case AdmissionScope():
            renamed = {"requests": "NumRequests"}
            sizes = {
                field.name: getattr(scope, field.name) for field in fields(scope) if field.name != "constants"
            }
            anchors = sizes.pop("anchors")
            plain |= {renamed.get(name, _camel(name)): str(size) for name, size in sizes.items()}
            plain["PinPercent"] = str(round(100 * constants.pin_fraction))
            defined["Anchors"] = " @@ ".join(f"{i} :> {size}" for i, size in enumerate(anchors))
        case BeliefScope():
            plain |= {"Chain": str(scope.chain), "Trailing": str(scope.trailing)}
        case RanksScope():
            plain["NumRanks"] = str(scope.ranks)
        case NodeScope():
            plain |= {"Holders": str(scope.holders), "Full": str(scope.full), "Swa": str(scope.swa)}
            plain |= {"Nodes": _names("n", scope.nodes), "Loaders": _names("l", scope.loaders)}
    return {f"{MODULE}.tla": _module(base, defined), f"{MODULE}.cfg": _cfg(base, plain, defined)}


def _module(base: str, defined: Mapping[str, str]) -> str:
    body = [f"The{name} == {value}" for name, value in defined.items()]
    return "\n".join([f"---- MODULE {MODULE} ----", f"EXTENDS {base}, TLC", *body, "====", ""])


def _cfg(base: str, plain: Mapping[str, str], defined: Mapping[str, str]) -> str:
    lines = ["SPECIFICATION Spec", "CONSTANTS", *(f"    {name} = {value}" for name, value in plain.items())]
    lines += [f"    {name} <- The{name}" for name in defined]
    lines += ["CONSTRAINT RetractionsBounded"] if base == "MCAdmission" else []
    return "\n".join([*lines, ""])


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _value(value: bool | int | float | str) -> str:
    match value:
        case bool():
            return str(value).upper()
        case str():
            return f'"{value}"'
    return str(value)


def _names(letter: str, count: int) -> str:
    return "{" + ", ".join(f'"{letter}{n}"' for n in range(count)) + "}"
