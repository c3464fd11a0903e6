"""What is compared: a configuration under a profile, and how each side takes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hicache_fsm.conform.constants import MODULE, Scope, generated
from hicache_fsm.conform.drive_admission import AdmissionDriver
from hicache_fsm.conform.drive_belief import BeliefDriver
from hicache_fsm.conform.drive_node import NodeDriver
from hicache_fsm.conform.plan import configurations
from hicache_fsm.conform.runtime_side import Driver
from hicache_fsm.model import Action, Configuration, System, system
from hicache_fsm.model.admission.scope import Scope as AdmissionScope
from hicache_fsm.model.belief import Scope as BeliefScope
from hicache_fsm.model.node import Scope as NodeScope
from hicache_fsm.model.ranks import Scope as RanksScope
from hicache_fsm.spec import Spec, set_constant
from hicache_fsm.tlc import Job, tla_dir

BASES: Final[Mapping[str, str]] = {
    "admission": "MCAdmission",
    "admission-disabled": "MCAdmission",
    "belief": "MCBelief",
    "node": "MCNode",
    "ranks": "MCRanks",
}
"""The TLA+ module of each system."""

LETTERS: Final[Mapping[str, str]] = {"admission": "r", "admission-disabled": "r", "node": "n", "ranks": "k"}

OUT_OF_REACH: Final = frozenset({"overflow"})
"""Events that no public call brings about: the runtime drops a belief only when half a million are kept."""


class ConformError(Exception):
    """A comparison that makes no sense: an unknown configuration, or one without a runtime."""


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration under one profile; `spec` has the configuration's constants in it."""

    spec: Spec
    profile: str
    configuration: Configuration
    scope: Scope

    @property
    def name(self) -> str:
        """Configuration and profile."""
        return f"{self.configuration.name} ({self.profile})"

    @property
    def has_runtime(self) -> bool:
        """Whether the runtime has calls for this system: ranks are lifecycles beside each other, not one."""
        return not isinstance(self.scope, RanksScope)

    def system(self, spec: Spec | None = None) -> System:
        """The model's system, from another spec if one is given."""
        return system(spec or self.spec, self.profile, self.configuration)

    def job(self, folder_text: Mapping[str, str] | None = None) -> Job:
        """TLC's job; `folder_text` has modules that stand in for those of the same name.

        Raises TlcError if there are no TLA+ modules.
        """
        files = generated(
            BASES[self.configuration.system], self.scope, self.spec.profiles[self.profile].constants
        )
        return Job(tla_dir(), MODULE, f"{MODULE}.cfg", extra={**files, **(folder_text or {})})

    def driver(self, names: tuple[str, ...], spec: Spec | None = None) -> Driver:
        """The runtime in a world with these bounds.  Raises ConformError for a system without one."""
        given = spec or self.spec, self.profile
        match self.scope:
            case AdmissionScope() as scope:
                return AdmissionDriver(*given, scope, names)
            case BeliefScope() as scope:
                return BeliefDriver(*given, scope, names)
            case NodeScope() as scope:
                return NodeDriver(*given, scope, names)
        raise ConformError(f"{self.name}: the runtime has no {self.configuration.system}")

    def label(self, action: Action) -> str:
        """What a step of the model is called, with its subject."""
        if action.subject < 0:
            return action.event
        if isinstance(self.scope, BeliefScope):
            pool, page = self.scope.pages[action.subject]
            return f"{action.event} {pool}{page}"
        return f"{action.event} {LETTERS[self.configuration.system]}{action.subject}"


def case(spec: Spec, configuration: str | Configuration, profile: str = "recommended") -> Case:
    """The case of a named or given configuration.  Raises ConformError for an unknown one."""
    if isinstance(configuration, str):
        known = configurations()
        if configuration not in known:
            raise ConformError(f'unknown configuration "{configuration}": one of {", ".join(known)}')
        configuration = known[configuration]
    if profile not in spec.profiles:
        raise ConformError(f'unknown profile "{profile}": one of {", ".join(spec.profiles)}')
    bounded = set_constant(spec, profile, **configuration.constants)
    bounds: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in configuration.bounds.items()
    }
    return Case(bounded, profile, configuration, _scope(configuration.system, bounded, profile, bounds))


def _scope(name: str, spec: Spec, profile: str, bounds: Mapping[str, Any]) -> Scope:
    constants = spec.profiles[profile].constants
    match name:
        case "belief":
            return BeliefScope(**bounds)
        case "node":
            return NodeScope(**bounds)
        case "ranks":
            return RanksScope(constants, **bounds)
        case "admission" | "admission-disabled":
            return AdmissionScope(constants, **bounds)
    raise ConformError(f'unknown system "{name}"')
