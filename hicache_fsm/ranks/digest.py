"""What one rank decided, pass by pass: a rolling 64-bit digest, and the newest decisions themselves."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

ABSENT: Final = 0
"""The digest of a rank that has decided nothing yet."""


class Decision(NamedTuple):
    """One event of the prefetch or the pin machine, as docs/event-log.md spells it.

    `tokens` is what the event is about, `op` the operation concerned (0: none), `facts` the log's text of the
    facts, empty if there are none.
    """

    machine: str
    event: str
    rid: str
    attempt: int
    tokens: int = 0
    op: int = 0
    facts: str = ""
    why: str = ""

    def __str__(self) -> str:
        facts = self.facts.partition(":")[2].strip("{}").replace('"', "").replace(",", ", ")
        about = [
            f"{self.tokens} tokens" if self.tokens else "",
            f"operation {self.op}" if self.op else "",
            self.why,
            facts,
        ]
        told = ", ".join(one for one in about if one)
        whose = f" {self.rid}#{self.attempt}" if self.rid else ""
        return f"{self.machine} {self.event}{whose}" + (f": {told}" if told else "")

    def as_json(self) -> dict[str, object]:
        """The same for machines, with the facts as an object."""
        facts = json.loads(self.facts.partition(":")[2] or "{}")
        return self._asdict() | {"facts": facts}


Plain = tuple[str, str, str, int, int, int, str, str]
"""A decision as the hot path keeps it: the members of `Decision`, in its order."""

TEXT: Final = "%s\x1f%s\x1f%s\x1f%d\x1f%d\x1f%d\x1f%s\x1f%s\x1e"
"""A plain decision as the text that is hashed, the same in every process and on every Python."""


BELIEFS: Final = frozenset({"write", "confirm", "deny", "discard"})
"""Events of beliefs that SGLang's ranks must decide alike: its cache counts on the same writes on every rank.

Which of them failed is each rank's own.
"""


def belief_facts(members: Mapping[str, object]) -> str:
    """What one of these events is about, as the text of its facts."""
    about = {name: members[name] for name in ("pool", "pages", "keep_pages") if name in members}
    return f',"facts":{json.dumps(about, separators=(",", ":"))}'


@dataclass(slots=True)
class Passed:
    """One pass in which something was decided.

    `digest` is that of everything up to and with this pass, as a signed 64-bit number; `decisions` is None
    once they were dropped to bound the memory.
    """

    pass_: int
    digest: int
    decisions: Sequence[Plain] | None


class RankDigest:
    """The decisions of one rank, for comparison with other ranks.

    Keeps the newest `passes` passes that decided anything, and of these at most the newest `decisions`
    decisions or so: the oldest passes then keep their digest only. A pass without decisions changes nothing
    and costs nothing. Belongs to the scheduler's thread.
    """

    __slots__ = ("_count", "_digest", "_kept", "_limit", "_now", "_open", "_passed")

    def __init__(self, *, passes: int = 256, decisions: int = 65_536) -> None:
        """Raises ValueError for a bound below 1."""
        if min(passes, decisions) < 1:
            raise ValueError("a digest keeps at least one pass and one decision")
        self._passed: deque[Passed] = deque(maxlen=passes)
        self._limit = decisions
        self._kept = 0
        self._count = 0
        self._digest = ABSENT
        self._now = 0
        self._open: list[Plain] = []

    @property
    def passes(self) -> int:
        """How many passes are kept at most."""
        return self._passed.maxlen or 0

    @property
    def decided(self) -> int:
        """Decisions in all closed passes so far."""
        return self._count

    @property
    def digest(self) -> int:
        """The digest of all closed passes, as a signed 64-bit number."""
        return self._digest

    def decide(self, now: int, decision: Plain) -> None:
        """The rank decided something in pass `now`; passes never decrease."""
        if now != self._now:
            self.close(now)
        self._open.append(decision)

    def close(self, now: int) -> None:
        """Pass `now` has begun: all passes before it are over."""
        decisions = self._open
        if decisions and now > self._now:
            self._enter(decisions)
            self._open = []
        self._now = now

    def since(self, pass_: int) -> Iterator[Passed]:
        """The kept closed passes from `pass_` on, oldest first."""
        return (one for one in self._passed if one.pass_ >= pass_)

    def kept(self, pass_: int) -> dict[int, Sequence[Plain]]:
        """The decisions that are still kept from `pass_` on, by pass, with those of the pass that is not over."""
        decided = {one.pass_: one.decisions for one in list(self.since(pass_)) if one.decisions is not None}
        return decided | ({self._now: tuple(self._open)} if self._open else {})

    def start_over(self) -> None:
        """Forget the closed passes, so that a difference already told does not show again."""
        self._passed.clear()
        self._kept = 0
        self._digest = ABSENT

    def _enter(self, decisions: list[Plain]) -> None:
        told = "".join([TEXT % one for one in decisions])
        text = f"{self._digest} {self._now} {told}".encode("utf-8", "surrogatepass")
        self._digest = int.from_bytes(blake2b(text, digest_size=8).digest(), "little", signed=True)
        passed = self._passed
        if len(passed) == passed.maxlen:
            self._drop(passed[0])
        passed.append(Passed(self._now, self._digest, decisions))
        self._count += len(decisions)
        self._kept += len(decisions)
        if self._kept > self._limit:
            self._shorten(decisions)

    def _shorten(self, newest: list[Plain]) -> None:
        """Drop the oldest decisions; of more than the bound in one pass, its first ones are kept."""
        for one in self._passed:
            if self._kept <= self._limit:
                return
            self._drop(one)
        self._passed[-1].decisions = newest[: self._limit]
        self._kept = self._limit

    def _drop(self, one: Passed) -> None:
        if one.decisions is not None:
            self._kept -= len(one.decisions)
            one.decisions = None
