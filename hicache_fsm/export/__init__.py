"""Bounded systems in the languages of other checkers."""

from hicache_fsm.export.promela import promela

__all__ = ["promela"]
