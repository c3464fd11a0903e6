"""What the TLC side raises."""


class TlcError(Exception):
    """TLC could not give a verdict: one line that says what is wrong and what mends it."""
