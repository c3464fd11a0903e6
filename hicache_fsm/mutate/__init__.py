"""Mutation of the spec: every row, literal, effect and constant altered, to see which check would miss it."""

from hicache_fsm.mutate.run import Fate, MutationReport, load_equivalents, mutate

__all__ = ["Fate", "MutationReport", "load_equivalents", "mutate"]
