"""A digest tells apart what was decided, in which order and in which pass, and forgets what is old."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from hicache_fsm.ranks import Decisions, RankComparison, RankDigest, RanksError, side_group
from hicache_fsm.ranks.difference import first_difference
from hicache_fsm.ranks.digest import Plain
from hicache_fsm.runtime import Anchor, HiCacheLifecycle


def decision(event: str = "issue", rid: str = "r", attempt: int = 0, tokens: int = 96) -> Plain:
    return ("prefetch", event, rid, attempt, tokens, 1, ',"facts":{"asks":true}', "")


def of(*passes: tuple[int, list[Plain]]) -> int:
    digest = RankDigest()
    for now, decisions in passes:
        for one in decisions:
            digest.decide(now, one)
    digest.close(passes[-1][0] + 1)
    return digest.digest


ONE = (3, [decision(), decision(rid="s")])


@pytest.mark.parametrize(
    "other",
    [
        (4, ONE[1]),
        (3, ONE[1][::-1]),
        (3, ONE[1][:1]),
        (3, [*ONE[1], decision(rid="t")]),
        (3, [decision(event="admit"), ONE[1][1]]),
        (3, [decision(rid="q"), ONE[1][1]]),
        (3, [decision(attempt=1), ONE[1][1]]),
        (3, [decision(tokens=80), ONE[1][1]]),
    ],
)
def test_any_other_decision_order_or_pass_gives_another_digest(other: tuple[int, list[Plain]]) -> None:
    assert of(ONE) == of((3, list(ONE[1])))
    assert of(ONE) != of(other)


def test_a_difference_stays_in_the_digest() -> None:
    later = [(now, [decision(rid=f"r{now}")]) for now in range(10, 20)]
    assert of(ONE, *later) != of((4, ONE[1]), *later)


def test_a_pass_without_decisions_changes_nothing() -> None:
    digest = RankDigest()
    digest.decide(1, decision())
    digest.close(2)
    before = digest.digest
    for now in range(3, 100):
        digest.close(now)
    assert digest.digest == before
    assert [one.pass_ for one in digest.since(0)] == [1]


def test_the_open_pass_is_not_in_the_digest() -> None:
    digest = RankDigest()
    digest.decide(1, decision())
    assert digest.digest == 0
    digest.close(2)
    assert digest.digest != 0


def test_ids_that_are_no_utf_8_are_decisions_too() -> None:
    assert of((1, [decision(rid="\ud800")])) != of((1, [decision(rid="\ud801")]))


def test_the_memory_is_bounded_in_passes_and_decisions() -> None:
    digest = RankDigest(passes=16, decisions=100)
    for now in range(1000):
        for number in range(now % 30):
            digest.decide(now, decision(rid=f"r{number}"))
    digest.close(1000)
    kept = list(digest.since(0))
    assert len(kept) == 16
    assert sum(len(one.decisions) for one in kept if one.decisions is not None) <= 100
    assert kept[-1].decisions is not None
    assert len(kept[-1].decisions) == 999 % 30
    assert kept[0].decisions is None


def test_of_a_pass_with_too_many_decisions_the_first_are_kept() -> None:
    digest = RankDigest(passes=4, decisions=10)
    for number in range(50):
        digest.decide(1, decision(rid=f"r{number}"))
    digest.decide(2, decision(rid="next"))
    digest.close(3)
    kept = [one.decisions for one in digest.since(2)]
    assert kept == [[decision(rid="next")]]
    assert digest.decided == 51


def test_bounds_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one pass"):
        RankDigest(passes=0)


def test_the_first_difference_is_found_with_what_went_before() -> None:
    common = [decision(rid=f"r{number}") for number in range(5)]
    ours, theirs = [*common, decision(rid="x")], [*common, decision(rid="x", tokens=80), decision(rid="y")]
    found = first_difference(7, {0: ours, 1: theirs, 2: ours})
    assert found is not None
    assert (found.pass_, found.index, found.odd) == (7, 5, (1,))
    assert [one.rid for one in found.before] == ["r2", "r3", "r4"]
    assert (
        str(found).splitlines()[0]
        == "ranks differ first in pass 7, decision 6; not with the majority: rank 1"
    )
    assert "  rank 1: prefetch issue x#0: 80 tokens, operation 1, asks:true" in str(found).splitlines()


def test_a_rank_that_decided_nothing_more_is_told_so() -> None:
    found = first_difference(7, {0: [], 1: [decision()]})
    assert found is not None
    assert "  rank 0: nothing more in this pass" in str(found)
    assert first_difference(7, {0: [decision()], 1: [decision()]}) is None


def test_every_decision_of_a_lifecycle_counts() -> None:
    """Each of these is left out once, and the digest is another one each time: nothing is deaf."""
    events = ("enqueue", "pin", "issue", "hit", "done", "unpin", "admit", "retract")
    digests = {left_out: lived(left_out) for left_out in ("", *events)}
    assert len(set(digests.values())) == len(digests)


class Deaf(RankDigest):
    """Does not hear one event."""

    def __init__(self, left_out: str) -> None:
        super().__init__()
        self.left_out = left_out

    def decide(self, now: int, decision: Plain) -> None:
        if decision[1] != self.left_out:
            super().decide(now, decision)


def lived(left_out: str) -> int:
    digest = Deaf(left_out)
    life = HiCacheLifecycle("recommended", pool_tokens=4096, max_context_len=1024, page_size=16)
    Decisions(life, digest)
    key = life.enqueue("r", 96)
    op = life.issue(key, anchor=Anchor("n", 64))
    assert op is not None
    life.begin_pass()
    life.hit(key, op, 96, 96)
    life.loaded(key, op)
    life.admit(key)
    life.retract(key)
    digest.close(9)
    return digest.digest


def test_ranks_are_imported_without_torch() -> None:
    code = "import sys, hicache_fsm.ranks; print('torch' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == "False"


@pytest.mark.parametrize("call", [side_group, lambda: RankComparison(RankDigest(), None)])
def test_without_torch_one_line_names_the_extra(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RanksError, match=r'pip install "hicache-fsm\[torch\]"') as told:
        call()
    assert "\n" not in str(told.value)


def test_a_digest_that_forgets_passes_between_two_comparisons_is_refused() -> None:
    with pytest.raises(ValueError, match="the 16 passes that the digest keeps"):
        RankComparison(RankDigest(passes=16), None, every=17)
