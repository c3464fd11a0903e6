"""The runtime driven over a small system: which calls it accepts, refuses or calls illegal, and where they lead."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hicache_fsm.conform.cases import case
from hicache_fsm.conform.graph import Edge, State
from hicache_fsm.conform.runtime_side import Choice, Driver, runtime_graph
from hicache_fsm.conform.views import shared
from hicache_fsm.model.configurations import Configuration
from hicache_fsm.runtime import IllegalTransition
from hicache_fsm.spec import Spec, set_constant


@dataclass(frozen=True, slots=True)
class Driven:
    """What driving found: each state's steps, and how often each call was answered how."""

    edges: Mapping[State, frozenset[Edge]]
    answers: Mapping[tuple[str, str], int]


def drive(rules: Spec, profile: str, configuration: Configuration) -> Driven:
    """Take every interleaving of public calls in a small system, with a lifecycle that follows `rules`.

    Raises whatever the lifecycle raises that is not an illegal event, and DriverError if it contradicts itself.
    """
    bounded = set_constant(rules, profile, **configuration.constants)
    chosen = case(bounded, configuration, profile)
    answers: Counter[tuple[str, str]] = Counter()
    driver = _Tallied(chosen.driver(shared(chosen.system()).names), answers)
    return Driven(runtime_graph(driver, twice=True).edges, dict(answers))


class _Tallied:
    """A driver that counts the answers to its calls: a call that changes nothing may still be legal or not."""

    def __init__(self, driver: Driver, answers: Counter[tuple[str, str]]) -> None:
        self.names = driver.names
        self._driver = driver
        self._answers = answers

    def choices(self) -> Iterable[Choice]:
        """As the driver."""
        return self._driver.choices()

    def take(self, choice: Choice) -> bool:
        """As the driver, counted."""
        try:
            taken = self._driver.take(choice)
        except IllegalTransition:
            self._answers[self.label(choice), "illegal"] += 1
            raise
        self._answers[self.label(choice), "taken" if taken else "refused"] += 1
        return taken

    def observe(self) -> State:
        """As the driver."""
        return self._driver.observe()

    def label(self, choice: Choice) -> str:
        """As the driver."""
        return self._driver.label(choice)

    def restart(self) -> "Driver":
        """As the driver, with the same count."""
        return _Tallied(self._driver.restart(), self._answers)
