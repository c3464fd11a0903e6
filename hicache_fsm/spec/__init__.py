"""The one source of states, events, transitions, profiles and invariants."""

from hicache_fsm.spec.load import SpecError, load_spec, spec_dir
from hicache_fsm.spec.mutate import apply_witness, set_constant
from hicache_fsm.spec.types import (
    Constants,
    Effect,
    Event,
    Finding,
    Guard,
    Invariant,
    Literal,
    Machine,
    Profile,
    Spec,
    State,
    Transition,
    Witness,
)
from hicache_fsm.spec.validate import Problem, validate

__all__ = [
    "Constants",
    "Effect",
    "Event",
    "Finding",
    "Guard",
    "Invariant",
    "Literal",
    "Machine",
    "Problem",
    "Profile",
    "Spec",
    "SpecError",
    "State",
    "Transition",
    "Witness",
    "apply_witness",
    "load_spec",
    "set_constant",
    "spec_dir",
    "validate",
]
