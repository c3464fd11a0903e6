"""What the books read, when, and how they date it: on a stand-in for the engine's maps.

That they agree with SGLang's own maps is shown on the real one, in test_plugin_real.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hicache_fsm.sglang.audit import Auditor
from hicache_fsm.sglang.keeper import TOTALS_EVERY, Keeper
from hicache_fsm.sglang.ledger import Ledger
from hicache_fsm.sglang.modes import InvariantViolation, Mode, Options
from hicache_fsm.sglang.view import FILED, EngineView
from hicache_fsm.sglang.watch import Watch


@dataclass(frozen=True)
class Handle:
    """As ``CacheRequestHandle``."""

    rid: str
    attempt_id: int = 0


@dataclass
class Maps:
    """What an engine files, by key; counts what is read."""

    filed: dict[Hashable, dict[str, int]] = field(default_factory=dict)
    reads: Counter[Hashable] = field(default_factory=Counter)
    extra_tokens: int = 0
    scheduler: Any = field(default_factory=lambda: SimpleNamespace(waiting_queue=[]))

    def holdings(self, key: Hashable, _rid: str) -> tuple[dict[str, int], int]:
        self.reads[key] += 1
        return dict(self.filed.get(key, {})), 0

    def counts(self) -> list[int]:
        return [sum(kind in held for held in self.filed.values()) for kind in FILED]

    def totals(self) -> tuple[int, int, int]:
        return self.pinned_tokens, self.pin_cap_tokens, 0

    @property
    def pinned_tokens(self) -> int:
        return sum(held.get("pin", 0) for held in self.filed.values()) + self.extra_tokens

    pin_cap_tokens = 1000
    occupied_tokens = 0

    def filed_keys(self) -> set[Hashable]:
        return set(self.filed)

    def hold(self, _key: Hashable) -> None:
        return None

    def beside(self, _key: Hashable) -> str:
        return ""


@pytest.fixture
def maps() -> Maps:
    return Maps()


@pytest.fixture
def notes() -> list[Any]:
    return []


@pytest.fixture
def ledger(maps: Maps, notes: list[Any]) -> Ledger:
    return Ledger(cast(EngineView, maps), notes)


def keeper_of(mode: Mode, maps: Maps, every: int = 4) -> Keeper:
    keeper = Keeper(Options(mode, every=every))
    keeper.ledger = Ledger(cast(EngineView, maps), keeper.notes)
    return keeper


def request(rid: str, attempt: int = 0) -> Any:
    return SimpleNamespace(rid=rid, cache_request_handle=Handle(rid, attempt))


# ---- what is read


def test_a_request_that_came_and_went_clean_is_read_once_however_often_it_was_noted(
    ledger: Ledger, maps: Maps, notes: list[Any]
) -> None:
    key = Handle("r1")
    ledger.enter(key)
    notes += [(key, ("pin",), now) for now in range(1, 9)]
    ledger.leave("r1", "admit", 9)
    assert ledger.settle(9, totals=False) == []
    assert maps.reads == {key: 1}
    assert ledger.records == {}


def test_who_is_queued_is_read_only_where_totals_are_compared(
    ledger: Ledger, maps: Maps, notes: list[Any]
) -> None:
    keys = [Handle(f"r{number}") for number in range(100)]
    for key in keys:
        ledger.enter(key)
    notes += [(key, (), 1) for key in keys]
    ledger.settle(1, totals=False)
    assert not maps.reads
    ledger.settle(1)
    assert maps.reads.total() == 100
    notes.append((keys[7], (), 2))
    ledger.settle(2)
    assert maps.reads.total() == 101


def test_a_change_that_nothing_noted_shows_in_the_counts_and_all_is_read_again(
    ledger: Ledger, maps: Maps
) -> None:
    maps.filed[Handle("r1")] = {"hold": 10}
    found = ledger.settle(5)
    assert ledger.resyncs == 1
    assert [finding.kind for finding in found] == ["hold"]


# ---- what a finding says


def test_a_leftover_is_dated_by_the_pass_that_filed_it_and_the_exit_by_its_own(
    ledger: Ledger, maps: Maps, notes: list[Any]
) -> None:
    key = Handle("r1")
    ledger.enter(key)
    notes.append((key, ("pin",), 3))
    ledger.leave("r1", "abort (client)", 6)
    maps.filed[key] = {"pin": 48}
    (finding,) = ledger.settle(16, totals=False)
    assert (finding.since_pass, finding.left_pass, finding.pass_) == (3, 6, 16)
    assert finding.message == (
        "r1 attempt 0 still holds a pin of 48 tokens since pass 3; it left by abort (client) in pass 6"
    )


def test_it_is_told_once_and_again_if_it_comes_back(ledger: Ledger, maps: Maps, notes: list[Any]) -> None:
    key = Handle("r1")
    ledger.enter(key)
    ledger.leave("r1", "admit", 1)
    told = []
    for held in ({"pin": 48}, {"pin": 48}, {}, {"pin": 48}):
        maps.filed[key] = held
        notes.append((key, (), 2))
        told.append(len(ledger.settle(2, totals=False)))
    assert told == [1, 0, 0, 1]


def test_what_is_armed_long_after_a_clean_exit_is_still_told_with_that_exit(
    ledger: Ledger, maps: Maps, notes: list[Any]
) -> None:
    ledger.enter(Handle("r1"))
    ledger.leave("r1", "admit", 1)
    ledger.settle(2)
    maps.filed["r1"] = {"marker": 1}
    notes.append(("r1", ("marker",), 40))
    (finding,) = ledger.settle(48, totals=False)
    assert (finding.attempt, finding.exit, finding.left_pass, finding.since_pass) == (0, "admit", 1, 40)


# ---- attempts


def test_attempts_of_a_request_id_are_numbered_across_clean_exits(ledger: Ledger) -> None:
    numbers = []
    for attempt in range(3):
        numbers.append(ledger.enter(Handle("r1", attempt)).attempt)
        ledger.leave("r1", "admit", attempt)
        ledger.settle(attempt)
    assert numbers == [0, 1, 2]


@pytest.mark.parametrize(
    "handles", [(Handle("r1", 0), Handle("r1", 1)), ("r1", "r1")], ids=["handles", "ids"]
)
def test_what_an_attempt_left_is_judged_before_the_next_takes_its_place(
    maps: Maps, handles: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    keeper = keeper_of(Mode.OBSERVE, maps)
    first, second = (SimpleNamespace(rid="r1", cache_request_handle=handle) for handle in handles)
    keeper.enter(first)
    assert keeper.ledger is not None
    keeper.ledger.leave("r1", "admit", 1)
    maps.filed[handles[0]] = {"pin": 48}
    keeper.enter(second)
    assert keeper.findings == {"pin-owned": 1}
    assert "r1 attempt 0 still holds a pin" in caplog.text
    assert keeper.ledger.records["r1"].attempt == 1


def test_what_an_older_attempt_left_under_its_own_key_stays_in_the_books(
    ledger: Ledger, maps: Maps, notes: list[Any]
) -> None:
    old, new = Handle("r1", 0), Handle("r1", 1)
    ledger.enter(old)
    ledger.leave("r1", "admit", 1)
    maps.filed[old] = {"hold": 10}
    assert len(ledger.settle(1)) == 1
    ledger.enter(new)
    assert [record.key for record in ledger.of("r1")] == [new, old]
    del maps.filed[old]
    notes.append((old, (), 2))
    ledger.settle(2)
    assert [record.key for record in ledger.of("r1")] == [new]
    assert ledger.resyncs == 0


def test_an_id_that_comes_again_under_another_key_before_it_was_read_leaves_the_books_whole(
    ledger: Ledger, maps: Maps, notes: list[Any]
) -> None:
    old, new = Handle("r1", 0), Handle("r1", 1)
    ledger.enter(old)
    ledger.leave("r1", "abort (client)", 1)
    ledger.enter(new)
    maps.filed[old] = {"hold": 10}
    (finding,) = ledger.settle(2)
    assert (finding.attempt, finding.kind) == (0, "hold")
    ledger.leave("r1", "admit", 3)
    del maps.filed[old]
    notes.append((old, (), 3))
    assert ledger.settle(4) == []
    assert ledger.records == {}


def test_an_attempt_that_goes_clean_passes_what_older_ones_left_on_to_the_next(
    ledger: Ledger, maps: Maps
) -> None:
    first, second, third = (Handle("r1", attempt) for attempt in range(3))
    ledger.enter(first)
    ledger.leave("r1", "admit", 1)
    maps.filed[first] = {"hold": 10}
    ledger.settle(1)
    ledger.enter(second)
    ledger.settle(2)
    ledger.enter(third)
    assert [record.key for record in ledger.of("r1")] == [third, first]


def test_what_was_noted_of_a_clean_id_is_judged_before_it_is_queued_again(maps: Maps) -> None:
    keeper = keeper_of(Mode.OBSERVE, maps)
    assert keeper.ledger is not None
    keeper.enter(request("r1"))
    keeper.ledger.leave("r1", "abort (client)", 1)
    keeper.ledger.settle(2)
    maps.filed["r1"] = {"marker": 1}
    keeper.notes.append(("r1", ("marker",), 3))
    keeper.enter(request("r1"))
    assert keeper.findings == {"marker-owned": 1}
    del maps.filed["r1"]
    assert keeper.ledger.settle(4) == []
    assert [record.attempt for record in keeper.ledger.of("r1")] == [1]


def test_giving_back_what_an_older_attempt_left_takes_the_newest_out_of_no_queue(maps: Maps) -> None:
    keeper = keeper_of(Mode.ENFORCE, maps)
    assert keeper.ledger is not None
    keeper.ledger.enter(Handle("r1", 0))
    keeper.ledger.leave("r1", "admit", 1)
    keeper.ledger.enter(Handle("r1", 1))
    watch, tree = Watch(keeper, "0.5.23"), SimpleNamespace(ongoing_prefetch={})
    watch.released(tree, Handle("r1", 0))
    assert keeper.ledger.records["r1"].queued
    watch.released(tree, Handle("r1", 1))
    assert keeper.ledger.records["r1"].exit == "abort (client)"


# ---- when


def leak(keeper: Keeper, maps: Maps, rid: str) -> None:
    keeper.enter(request(rid))
    assert keeper.ledger is not None
    keeper.ledger.leave(rid, "admit", keeper.now)
    maps.filed[Handle(rid)] = {"pin": 48}


def test_observe_finds_a_leftover_within_its_passes(maps: Maps) -> None:
    keeper = keeper_of(Mode.OBSERVE, maps, every=4)
    for _ in range(6):
        keeper.pass_begins()
    leak(keeper, maps, "r1")
    passes = 0
    while not keeper.findings:
        keeper.pass_begins()
        passes += 1
    assert passes <= 4


def test_strict_raises_out_of_the_next_pass(maps: Maps) -> None:
    keeper = keeper_of(Mode.STRICT, maps, every=4)
    for _ in range(6):
        keeper.pass_begins()
    leak(keeper, maps, "r1")
    with pytest.raises(InvariantViolation, match="r1 attempt 0 still holds a pin"):
        keeper.pass_begins()


def test_a_surplus_of_the_engines_own_count_is_found_within_eight_judgements(maps: Maps) -> None:
    keeper = keeper_of(Mode.OBSERVE, maps, every=4)
    keeper.pass_begins()
    maps.extra_tokens = 33
    keeper.enter(request("r1"))
    passes = 0
    while not keeper.findings:
        keeper.pass_begins()
        passes += 1
    assert passes <= 4 * TOTALS_EVERY


def test_the_cost_of_a_judgement_does_not_follow_the_queue(maps: Maps) -> None:
    reads = []
    for queued in (10, 1000):
        maps.reads.clear()
        keeper = keeper_of(Mode.OBSERVE, maps, every=1)
        assert keeper.ledger is not None
        for number in range(queued):
            keeper.enter(request(f"q{number}"))
        keeper.ledger.settle(0)
        maps.reads.clear()
        for number in range(64):
            keeper.enter(request(f"r{number}"))
            keeper.ledger.leave(f"r{number}", "admit", keeper.now)
            keeper.pass_begins()
        reads.append(maps.reads.total())
    assert reads == [64, 64]


def test_without_books_nothing_that_hooks_note_is_kept() -> None:
    keeper = Keeper(Options(Mode.OBSERVE, every=4))
    for number in range(100):
        keeper.notes.append((Handle(f"r{number}"), (), number))
        keeper.pass_begins()
    assert len(keeper.notes) <= 4


@pytest.mark.parametrize(("ranks", "freed"), [(1, 3), (2, 0)])
def test_lost_host_slots_are_given_back_by_one_rank_alone(ranks: int, freed: int) -> None:
    given: list[list[int]] = []
    view = SimpleNamespace(ranks=ranks, storage_busy=lambda: False)
    auditor = Auditor(cast("Ledger", SimpleNamespace(view=view, in_flight={})))
    auditor._lost = [(SimpleNamespace(free=given.append), [4, 5, 6])]
    assert (auditor.free_lost(), given) == (freed, [[4, 5, 6]] if freed else [])
