"""What the runtime raises."""

from hicache_fsm.machine import IllegalTransition, Past

__all__ = ["IllegalTransition", "Past", "WrongAnswer"]


class WrongAnswer(ValueError):  # noqa: N818 - says what the answer is
    """An answer that cannot be true, as with an unknown reason or too many tokens; nothing has changed."""
