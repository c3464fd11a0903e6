"""The machines of the spec, ready to run: a compiled table for the hot path, diagrams for people.

The reference machine is in `hicache_fsm.machine.reference`, which alone needs `transitions`.
"""

from hicache_fsm.machine.compiled import CompiledMachine, Row
from hicache_fsm.machine.diagram import markdown, mermaid
from hicache_fsm.machine.fork import Fork, grow
from hicache_fsm.machine.illegal import IllegalTransition, Past
from hicache_fsm.machine.trace import Entry, Tracer

__all__ = [
    "CompiledMachine",
    "Entry",
    "Fork",
    "IllegalTransition",
    "Past",
    "Row",
    "Tracer",
    "grow",
    "markdown",
    "mermaid",
]
