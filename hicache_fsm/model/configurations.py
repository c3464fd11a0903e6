"""The named bounded systems of spec/bounds/search.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hicache_fsm.model.admission import admission
from hicache_fsm.model.admission.scope import Scope as AdmissionScope
from hicache_fsm.model.belief import Scope as BeliefScope
from hicache_fsm.model.belief import belief_system
from hicache_fsm.model.layout import ModelError
from hicache_fsm.model.node import Scope as NodeScope
from hicache_fsm.model.node import node_system
from hicache_fsm.model.ranks import Scope as RanksScope
from hicache_fsm.model.ranks import ranks_system
from hicache_fsm.model.system import System
from hicache_fsm.spec import Spec
from hicache_fsm.spec.load import spec_dir
from hicache_fsm.spec.mutate import set_constant


@dataclass(frozen=True, slots=True)
class Configuration:
    """A system with its bounds: `constants` replace the profile's, `why` is what makes the bounds honest."""

    name: str
    system: str
    why: str
    default: bool
    constants: Mapping[str, int | bool]
    bounds: Mapping[str, Any]


def load_configurations(path: Path | None = None) -> dict[str, Configuration]:
    """Every configuration by its name, SYSTEM.NAME, in file order."""
    file = path or spec_dir() / "bounds" / "search.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    found: dict[str, Configuration] = {}
    for kind, named in tables.items():
        for short, table in named.items():
            name = f"{kind}.{short}"
            found[name] = Configuration(
                name,
                kind,
                table["why"],
                table.get("default", True),
                table.get("constants", {}),
                table["bounds"],
            )
    return found


def configurations() -> list[str]:
    """The names of the default configurations."""
    return [name for name, each in load_configurations().items() if each.default]


def system(spec: Spec, profile: str, configuration: str | Configuration) -> System:
    """One bounded system under one profile.  Raises ModelError for an unknown configuration or bad bounds."""
    if isinstance(configuration, str):
        known = load_configurations()
        if configuration not in known:
            raise ModelError(f'unknown configuration "{configuration}": one of {", ".join(known)}')
        configuration = known[configuration]
    bounded = set_constant(spec, profile, **configuration.constants)
    constants = bounded.profiles[profile].constants
    named = (bounded, profile, configuration.system, configuration.name)
    bounds: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in configuration.bounds.items()
    }
    try:
        match configuration.system:
            case "admission" | "admission-disabled":
                return admission(*named, AdmissionScope(constants, **bounds))
            case "belief":
                return belief_system(*named, BeliefScope(**bounds))
            case "node":
                return node_system(*named, NodeScope(**bounds))
            case "ranks":
                return ranks_system(*named, RanksScope(constants, **bounds))
    except TypeError as error:
        raise ModelError(f"{configuration.name}: {error}") from error
    raise ModelError(f'{configuration.name}: unknown system "{configuration.system}"')


def systems(spec: Spec, profile: str, names: list[str] | None = None) -> list[System]:
    """The bounded systems of one profile: the default configurations, or those named."""
    return [system(spec, profile, name) for name in (configurations() if names is None else names)]
