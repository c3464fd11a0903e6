"""The conformance suite: event sequences that any HiCache-like cache can be driven through, and what must hold then."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hicache_fsm.suite.conformance import Conformance

__all__ = ["Conformance"]


def __getattr__(name: str) -> Any:
    """`Conformance`, once somebody asks for it: it needs pytest."""
    if name == "Conformance":
        from hicache_fsm.suite.conformance import Conformance

        return Conformance
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
