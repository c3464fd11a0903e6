"""The bounds of an admission system and the variables they give it.

All amounts are pages.  Every request wants the whole chain and needs the same room on the device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hicache_fsm.model.expr import Expr, one_of
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.rules import anchor_cap, retry_due
from hicache_fsm.spec.types import Constants, Machine

OPERATION = ("none", "asking", "known", "reading")
"""The states of a live operation, and none; an operation that ended is none, an orphan is kept apart."""


@dataclass(frozen=True, slots=True)
class Scope:
    """An admission system's bounds.

    `chain` is the length of the shared prefix chain, `host` the size of the host pool, `device` that of the
    device pool, `context` the largest context length, and `anchors` what each request's pin holds.  A request
    needs one page more than the context to be admitted.  `attempts` counts its attempts, the first included.
    """

    constants: Constants
    requests: int
    chain: int
    host: int
    device: int
    context: int
    anchors: tuple[int, ...]
    attempts: int

    @property
    def demand(self) -> int:
        """What the largest admissible request needs on the device: up to a page more than its context."""
        return self.context + 1

    @property
    def cap(self) -> int:
        """How many pages may be pinned at once."""
        rules = self.constants
        return anchor_cap(rules.pin_fraction, self.device, self.context, rules.headroom_slack)

    @property
    def retracts(self) -> bool:
        """Whether a request may have another attempt."""
        return self.attempts > 1

    @property
    def reads(self) -> Sequence[int]:
        """After how many pages a read may be cut: any number but all."""
        return range(self.chain)

    def due(self, waited: Expr) -> Expr:
        """Whether this sweep, the one after `waited` others, re-issues the question."""
        interval = self.constants.interval
        return one_of(waited, [passes for passes in range(interval + 1) if retry_due(passes, interval)])


def name(request: int) -> str:
    """What a request is called: r0 heads the queue."""
    return f"r{request}"


def layout(scope: Scope, prefetch: Machine, pin: Machine) -> Layout:
    """Every variable of the system, the requests' first."""
    found = [variable for i in range(scope.requests) for variable in _request(scope, name(i), prefetch, pin)]
    return Layout([*found, *_shared(scope)])


def initial(scope: Scope, prefetch: Machine, pin: Machine) -> Mapping[str, int]:
    """No request has arrived, storage holds nothing, the anchor is on the device."""
    values = {variable.name: 0 for variable in layout(scope, prefetch, pin).variables}
    return {**values, "anchored": 1, "host_free": scope.host}


def _request(scope: Scope, who: str, prefetch: Machine, pin: Machine) -> list[Variable]:
    rules = scope.constants
    states = ("absent", *prefetch.states)
    owners = ("none", *(f"attempt {n}" for n in range(scope.attempts)))

    def pages(short: str, about: str) -> Variable:
        return Variable(f"{who}.{short}", scope.host, about, saturating=True)

    return [
        Variable(f"{who}.state", len(states) - 1, "The attempt's prefetch state.", names=states),
        Variable(f"{who}.running", 1, "Scheduled and still occupying its demand."),
        Variable(f"{who}.attempt", scope.attempts - 1, "Which attempt it is; a retraction begins the next."),
        Variable(f"{who}.asked", rules.max_attempts + 1, "Re-issues spent.", saturating=True),
        Variable(f"{who}.waited", rules.interval, "Sweeps counted while pending.", saturating=True),
        Variable(f"{who}.marker", scope.attempts, "Whose miss marker is up.", names=owners),
        Variable(f"{who}.immediate", 1, "The marker stands for a known hit."),
        Variable(f"{who}.issued", 1, "This attempt has issued a question.  Checked only."),
        Variable(f"{who}.op", 3, "The live operation.", names=OPERATION),
        Variable(f"{who}.pages", scope.chain, "The hit of the live operation; owned once it is reading."),
        Variable(f"{who}.orphan_asking", 1, "A terminated question has still to be answered."),
        pages("orphan_pages", "Owned by terminated reads, until the last answer."),
        pages("hold", "Staged, waiting for admission."),
        pages("filling", "A hold being copied to the device, until the acknowledgement."),
        Variable(f"{who}.pin", len(pin.states) - 1, "The pin on the anchor.", names=tuple(pin.states)),
        Variable(
            f"{who}.since", rules.interval, "Passes since the marker rose.  Checked only.", saturating=True
        ),
        pages("io", "Pages that storage may still write.  Checked only."),
    ]


def _shared(scope: Scope) -> list[Variable]:
    most = sum(scope.anchors) + 1
    return [
        Variable("anchored", 1, "The anchor node is on the device."),
        Variable("stored", scope.chain, "Leading pages of the chain that storage holds."),
        Variable("host_free", scope.host + 1, "Free pages of the host pool.", low=-1, saturating=True),
        Variable("occupied", scope.host + 1, "Pages charged to prefetches.", low=-1, saturating=True),
        Variable("pinned", most, "Pages counted against the pin cap.", low=-1, saturating=True),
    ]
