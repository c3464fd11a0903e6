"""The first decision in which ranks differ, found and told the same way live and from logs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hicache_fsm.ranks.digest import Decision, Plain

BEFORE: Final = 3
"""How many of the pass's common decisions a report shows before the first that differs."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Ranks decided differently for the first time in pass `pass_`, in its decision number `index`, from 0.

    `decisions` has each rank's decision, None where the rank decided nothing more in that pass; it is empty
    if that decision is no longer kept. `before` has the last ones that all agreed on in the same pass;
    `places` says where a log has the decision, by rank, if it is one.
    """

    pass_: int
    index: int
    decisions: Mapping[int, Decision | None]
    before: tuple[Decision, ...] = ()
    places: Mapping[int, str] = field(default_factory=dict)

    @property
    def odd(self) -> tuple[int, ...]:
        """The ranks that are not with the majority; empty if there is none, as with two ranks."""
        camps: dict[Decision | None, list[int]] = {}
        for rank, decision in self.decisions.items():
            camps.setdefault(decision, []).append(rank)
        largest = max(camps.values(), key=len, default=[])
        if 2 * len(largest) <= len(self.decisions):
            return ()
        return tuple(rank for rank in self.decisions if rank not in largest)

    def __str__(self) -> str:
        if not self.decisions:
            return (
                f"ranks differ in pass {self.pass_} or before, of which the decisions are no longer kept: "
                "keep more, or compare the event logs"
            )
        lines = [f"ranks differ first in pass {self.pass_}, decision {self.index + 1}"]
        if self.odd:
            named = ", ".join(map(str, self.odd))
            lines[0] += f"; not with the majority: rank {named}"
        lines += [f"  all: {decision}" for decision in self.before]
        for rank, decision in self.decisions.items():
            place = f"  ({self.places[rank]})" if rank in self.places else ""
            told = decision if decision is not None else "nothing more in this pass"
            lines.append(f"  rank {rank}: {told}{place}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """The same for machines."""
        return {
            "pass": self.pass_,
            "decision": self.index + 1,
            "odd": list(self.odd),
            "before": [decision.as_json() for decision in self.before],
            "ranks": {
                str(rank): None if decision is None else decision.as_json()
                for rank, decision in self.decisions.items()
            },
            "places": {str(rank): place for rank, place in self.places.items()},
        }


def first_difference(pass_: int, decided: Mapping[int, Sequence[Plain]]) -> Difference | None:
    """Where the ranks' decisions of one pass differ first, None if they are equal."""
    longest = max(map(len, decided.values()))
    for index in range(longest):
        at = {rank: mine[index] if index < len(mine) else None for rank, mine in decided.items()}
        if len(set(at.values())) > 1:
            common = next(iter(decided.values()))[max(0, index - BEFORE) : index]
            return Difference(
                pass_,
                index,
                {rank: None if one is None else Decision(*one) for rank, one in at.items()},
                tuple(Decision(*one) for one in common),
            )
    return None
