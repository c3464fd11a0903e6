"""Bounded systems built from the spec's tables, for exhaustive search and for proof.

`expr` is the language, `tables` turns rows into steps, and each system says what a table's names mean in it:
`admission`, `belief`, `node`, `ranks`.  `configurations` names the bounds.
"""

from hicache_fsm.model.configurations import (
    Configuration,
    configurations,
    load_configurations,
    system,
    systems,
)
from hicache_fsm.model.layout import ModelError
from hicache_fsm.model.system import Action, Goal, StateCheck, StepCheck, System

__all__ = [
    "Action",
    "Configuration",
    "Goal",
    "ModelError",
    "StateCheck",
    "StepCheck",
    "System",
    "configurations",
    "load_configurations",
    "system",
    "systems",
]
