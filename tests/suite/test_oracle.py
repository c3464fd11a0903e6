"""The oracle judges hand-made sequences: each invariant is seen broken once, and unbroken beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from hicache_fsm.spec import load_spec
from hicache_fsm.suite.language import parse
from hicache_fsm.suite.oracle import WEIGHT, Finding, Oracle
from hicache_fsm.suite.protocol import Answer, Observed, Reply, RequestView, World

WORLD = World({"r": ("a", "b"), "s": ("a", "b")})
DONE = Reply(Answer.DONE)
REFUSED = Reply(Answer.REFUSED)

QUEUED = RequestView("queued")
PROBING = RequestView("probing", question=True)
MISSED = RequestView("missed", marker=True)
RUNNING = RequestView("running")
ABORTED = RequestView("aborted")

Step = tuple[str, Reply, Observed]


def seen(
    now: int = 0,
    asked: Mapping[str, int] | None = None,
    *,
    s: RequestView | None = None,
    **views: RequestView,
) -> Observed:
    """What a target shows: requests by name."""
    requests = {**views, **({"s": s} if s else {})}
    pinned = sum(view.pinned for view in requests.values())
    occupied = sum(view.pages + view.hold for view in requests.values())
    return Observed(now, requests, asked or {}, pinned=pinned, pin_cap=8, occupied=occupied)


def judge(steps: Sequence[Step], world: World = WORLD) -> list[Finding]:
    """All that the oracle finds along the steps."""
    oracle = Oracle(world)
    return [found for line, reply, after in steps for found in oracle.see(parse(line), reply, after)]


def ids(found: Sequence[Finding]) -> set[str]:
    """The invariants that were broken."""
    return {each.invariant for each in found}


ASKED = ("enq r", DONE, seen(asked={"r": 1}, r=PROBING))
MISS = ("miss r", DONE, seen(asked={"r": 1}, r=MISSED))

PLANTED: dict[str, tuple[list[Step], World]] = {
    "marker-owned": (
        [ASKED, MISS, ("abort r", DONE, seen(asked={"r": 1}, r=replace(ABORTED, marker=True)))],
        WORLD,
    ),
    "marker-once": (
        [
            ASKED,
            MISS,
            ("tick", DONE, seen(1, {"r": 2}, r=RequestView("retrying", marker=True, spent=1, question=True))),
        ],
        WORLD,
    ),
    "attempts-bounded": (
        [ASKED, ("tick", DONE, seen(1, {"r": 1}, r=RequestView("exhausted", spent=3)))],
        WORLD,
    ),
    "paced": (
        [ASKED, MISS, ("tick", DONE, seen(1, {"r": 2}, r=RequestView("retrying", spent=1, question=True)))],
        WORLD,
    ),
    "one-in-flight": (
        [
            ASKED,
            ("cut r", DONE, replace(seen(asked={"r": 1}, r=MISSED), orphans=1)),
            (
                "tick 3",
                DONE,
                replace(seen(3, {"r": 2}, r=RequestView("retrying", spent=1, question=True)), orphans=1),
            ),
            ("miss r q=1", DONE, seen(3, {"r": 2}, r=replace(MISSED, spent=1))),
        ],
        WORLD,
    ),
    "disabled-inert": ([ASKED, MISS], replace(WORLD, interval=0)),
    "pin-cap": ([("enq r", DONE, seen(asked={"r": 1}, r=replace(PROBING, pinned=9)))], WORLD),
    "headroom": ([("enq r", DONE, seen(r=QUEUED)), ("admit r", REFUSED, seen(r=QUEUED))], WORLD),
    "pin-owned": (
        [ASKED, ("abort r", DONE, seen(asked={"r": 1}, r=replace(ABORTED, pinned=1)))],
        WORLD,
    ),
    "no-residue": ([ASKED, ("abort r", DONE, seen(asked={"r": 1}, r=replace(ABORTED, hold=1)))], WORLD),
    "conservation": (
        [("tick", DONE, replace(seen(1, r=QUEUED), host_free=16, orphan_pages=2))],
        WORLD,
    ),
    "load-exclusive": ([("load @b by=x", DONE, seen()), ("load @b by=y", DONE, seen())], WORLD),
    "tombstone-once": (
        [("evict @b", DONE, replace(seen(), faults=("tombstone-once: the SWA side of b is freed again",)))],
        WORLD,
    ),
    "belief-evidence": (
        [
            ("write a", DONE, seen()),
            ("wack a ok=no", DONE, replace(seen(), believed=frozenset("a"))),
        ],
        WORLD,
    ),
    "heals": (
        [
            ("write a", DONE, seen()),
            ("wack a ok=no", DONE, replace(seen(), believed=frozenset("a"))),
            ("write a", REFUSED, replace(seen(), believed=frozenset("a"))),
        ],
        WORLD,
    ),
    "progress": ([("enq r", DONE, seen(r=QUEUED)), ("settle", DONE, seen(64, r=QUEUED))], WORLD),
    "asked-armed": ([("enq r", DONE, seen(r=MISSED))], WORLD),
    "lockstep": (
        [("tick", DONE, replace(seen(1, {"r": 2}), asked_by_rank=({"r": 2}, {"r": 1})))],
        replace(WORLD, ranks=2),
    ),
}
"""For each invariant a sequence that breaks it."""


@pytest.mark.parametrize("invariant", PLANTED)
def test_a_planted_violation_is_found(invariant: str) -> None:
    steps, world = PLANTED[invariant]
    assert invariant in ids(judge(steps, world))


@pytest.mark.parametrize("invariant", sorted(PLANTED))
def test_nothing_is_found_before_the_step_that_breaks_it(invariant: str) -> None:
    steps, world = PLANTED[invariant]
    last = {"marker-once": 1, "disabled-inert": 1}.get(invariant, len(steps) - 1)
    assert invariant not in ids(judge(steps[:last], world))


def test_every_invariant_of_the_spec_is_judged_and_planted() -> None:
    assert set(load_spec().invariants) == set(PLANTED) == set(WEIGHT)


def test_a_life_without_faults_breaks_nothing() -> None:
    loaded = RequestView("loaded", spent=1, hold=2, loaded=2)
    steps: list[Step] = [
        ASKED,
        MISS,
        ("tick 3", DONE, seen(3, {"r": 2}, r=RequestView("retrying", spent=1, question=True))),
        ("hit r", DONE, seen(3, {"r": 2}, r=RequestView("transferring", spent=1, question=True, pages=2))),
        ("done r", DONE, seen(3, {"r": 2}, r=loaded)),
        ("admit r", DONE, replace(seen(3, {"r": 2}, r=RUNNING), filling=2, occupied=2)),
        ("settle", DONE, replace(seen(4, {"r": 2}, r=RequestView("finished")), idle=True, host_free=16)),
    ]
    assert judge(steps) == []


def test_a_standing_fault_is_told_once() -> None:
    leak = seen(asked={"r": 1}, r=replace(ABORTED, hold=1))
    found = judge([ASKED, ("abort r", DONE, leak), ("tick", DONE, replace(leak, now=1))])
    assert [each.invariant for each in found].count("no-residue") == 1


def test_headroom_is_not_judged_of_what_waits_behind_another() -> None:
    both = seen(r=QUEUED, s=QUEUED)
    assert (
        ids(judge([("enq r", DONE, seen(r=QUEUED)), ("enq s", DONE, both), ("admit s", REFUSED, both)]))
        == set()
    )


def test_an_answer_to_the_live_question_may_change_the_request() -> None:
    assert judge([ASKED, ("miss r q=1", DONE, MISS[2])]) == []


def test_a_discarded_page_that_stays_believed_is_found_where_the_base_is_told() -> None:
    reading = seen(asked={"r": 1}, r=RequestView("transferring", question=True, pages=2, base=0))
    after = replace(seen(asked={"r": 1}, r=MISSED), believed=frozenset("ab"))
    found = judge([ASKED, ("hit r", DONE, reading), ("discard r 1", DONE, after)])
    assert [(each.invariant, each.subject) for each in found] == [("belief-evidence", "b")]
