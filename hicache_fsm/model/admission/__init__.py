"""Requests that queue for admission, share one prefix chain in storage, and prefetch it."""

from hicache_fsm.model.admission.system import admission

__all__ = ["admission"]
