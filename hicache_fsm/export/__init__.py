"""Bounded systems in the languages of other checkers."""

from hicache_fsm.export.promela import promela
from hicache_fsm.export.spin import SpinError, SpinRun, require_spin, spin_count

__all__ = ["SpinError", "SpinRun", "promela", "require_spin", "spin_count"]
