"""Inductive proofs with z3 of what the bounded search checks: for every pool size, length, cap and budget."""

from hicache_fsm.prove.run import PROVABLE, TIMEOUT_S, Proof, ProofReport, prove

__all__ = ["PROVABLE", "TIMEOUT_S", "Proof", "ProofReport", "prove"]
