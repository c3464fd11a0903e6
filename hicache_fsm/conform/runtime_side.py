"""The shipped runtime as a graph: its public calls over every interleaving, states deduplicated.

There is no way to copy a lifecycle, so a state is the path to it: each step is taken after a replay of its path, on
the same lifecycle if everything in it could be ended, so that what one life leaves behind shows in the next.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Protocol

from hicache_fsm.conform.graph import Edge, Graph, State
from hicache_fsm.runtime import IllegalTransition

Choice = tuple[Hashable, ...]
"""What the environment does next: an event, whom it concerns, and what it decides."""

Tell = Callable[[int, int], None]
"""Called after each level with its depth and the distinct states so far."""


class Driver(Protocol):
    """A lifecycle in a small world of its own."""

    names: tuple[str, ...]

    def choices(self) -> Iterable[Choice]:
        """What the world may do now; the lifecycle may still refuse."""

    def take(self, choice: Choice) -> bool:
        """Do it.  False, or IllegalTransition, if the lifecycle refuses."""

    def observe(self) -> State:
        """The state, as far as all sides can tell it."""

    def label(self, choice: Choice) -> str:
        """What the step is called."""

    def restart(self) -> "Driver":
        """The same world at its beginning; this one is not used again."""


class DriverError(Exception):
    """The runtime broke its own word: a refused call changed it, or one path led to two states."""


def runtime_graph(driver: Driver, tell: Tell = lambda depth, found: None, *, twice: bool = False) -> Graph:
    """Every state that the lifecycle reaches under its driver, with its steps.

    `twice` expands each state from a second path as well, where there is one, and raises DriverError if its steps
    then differ: two histories that look alike must have the same future.
    """
    search = _Search(driver)
    initial = driver.observe()
    level: dict[State, tuple[Choice, ...]] = {initial: ()}
    depth = 0
    while level:
        after: dict[State, tuple[Choice, ...]] = {}
        for state, path in level.items():
            search.edges[state] = set()
            for label, choice, reached in search.expand(path, state):
                search.edges[state].add((label, reached))
                longer = (*path, choice)
                if reached not in search.edges and reached not in level and reached not in after:
                    after[reached] = longer
                elif reached != state:
                    search.others[reached] = longer
        depth += 1
        tell(depth, len(search.edges) + len(after))
        level = after
    if twice:
        search.check_again(driver.names)
    return Graph(driver.names, initial, search.edges)


class _Search:
    """`others` has a second path to each state that has one."""

    def __init__(self, driver: Driver) -> None:
        self.edges: dict[State, set[Edge]] = {}
        self.others: dict[State, tuple[Choice, ...]] = {}
        self._driver = driver

    def expand(self, path: tuple[Choice, ...], state: State) -> Iterator[tuple[str, Choice, State]]:
        """The steps from the state at the end of `path`."""
        driver = self._replay(path, state)
        clean = True
        for choice in list(driver.choices()):
            if not clean:
                driver = self._replay(path, state)
            try:
                clean = not driver.take(choice)
            except IllegalTransition:
                clean = True
            if not clean:
                yield driver.label(choice), choice, driver.observe()
            elif driver.observe() != state:
                raise DriverError(f"the runtime refused {choice} and changed all the same")

    def check_again(self, names: tuple[str, ...]) -> None:
        """Raise DriverError if a state's steps depend on the path to it."""
        for state, path in self.others.items():
            again = {(label, reached) for label, _, reached in self.expand(path, state)}
            if again != self.edges[state]:
                raise DriverError(
                    f"the runtime's steps depend on the path to {dict(zip(names, state, strict=True))}"
                )

    def _replay(self, path: tuple[Choice, ...], state: State) -> Driver:
        self._driver = self._driver.restart()
        for choice in path:
            self._driver.take(choice)
        if self._driver.observe() != state:
            raise DriverError(f"the path {path} leads to another state when it is taken again")
        return self._driver
