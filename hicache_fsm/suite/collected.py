"""What pytest collects for --hicache-target: the suite against the target that the option names."""

from hicache_fsm.suite.conformance import Conformance


class TestConformance(Conformance):
    """The suite with its defaults."""
