"""All searches of a profile, and which rows of the tables they never took."""

from collections.abc import Iterable, Sequence

from hicache_fsm.explore.result import Result
from hicache_fsm.explore.search import Progress, explore
from hicache_fsm.model import systems
from hicache_fsm.spec import Spec
from hicache_fsm.spec.types import Transition


def check_profile(
    spec: Spec,
    profile: str,
    *,
    names: Sequence[str] | None = None,
    max_states: int = 20_000_000,
    progress: Progress | None = None,
) -> list[Result]:
    """Searches the default configurations of one profile, or those named, one after the other."""
    chosen = None if names is None else list(names)
    return [
        explore(each, max_states=max_states, progress=progress) for each in systems(spec, profile, chosen)
    ]


def untaken(spec: Spec, results: Iterable[Result]) -> list[tuple[str, Transition]]:
    """The rows, with their machines, that no step of these searches took."""
    taken = {row for result in results for row, count in result.taken.items() if count}
    return [
        (machine.name, row)
        for machine in spec.machines.values()
        for row in machine.transitions
        if (machine.name, row.row) not in taken
    ]
