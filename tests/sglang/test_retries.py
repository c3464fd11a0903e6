"""The drop-in retries against the real classes of the wheels, on any sequence of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sglang_support import SINCE_0520

from hicache_fsm.sglang import retries
from hicache_fsm.sglang.excerpt import excerpt
from hicache_fsm.sglang.install import DEFAULT_ROOT, mend
from hicache_fsm.sglang.retries import MissMarkers, StoragePrefetchRetries

RIDS = "abcde"
real = pytest.mark.sglang


def wheel(version: str, path: str) -> Path:
    source = DEFAULT_ROOT / version / "sglang" / "srt" / path
    if not source.exists():
        pytest.skip(f"{source} is missing: run `{mend(version)}`")
    return source


@pytest.fixture(scope="module")
def original(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """The class of a wheel: of 0.5.23, where a test names none."""
    source = wheel(getattr(request, "param", "0.5.23"), "mem_cache/storage_prefetch.py")
    names = ["_StoragePrefetchRetry", "StoragePrefetchRetries"]
    found: Callable[[], Any] = excerpt(source, names, dataclass=dataclass, Optional=Optional)[names[1]]
    return found


@dataclass(eq=False)
class Req:
    """What SGLang's request has of retries, 0.5.19's fields included."""

    rid: str
    storage_prefetch_retry_attempts: int = 0
    storage_prefetch_retry_pending: bool = False
    storage_prefetch_retry_wait_polls: int = 0


class Seed:
    """The scheduler's sweep and the tree's markers of the 0.5.19 wheel, in a scheduler of nothing else."""

    def __init__(self, functions: dict[str, Any], memory: SimpleNamespace) -> None:
        self._storage_prefetch_missed_rids: set[str] = set()
        self.memory = memory
        self.waiting_queue: list[Req] = []
        self.tree_cache = SimpleNamespace(
            pop_storage_prefetch_miss=lambda rid: functions[POP](self, rid),
        )
        self.asked: list[Req] = []
        self._sweep = functions[SWEEP]

    def _prefetch_kvcache(self, req: Req) -> None:
        self.asked.append(req)

    def sweep(self, queue: list[Req], interval: int, max_attempts: int) -> list[Req]:
        self.waiting_queue, self.asked = queue, []
        self.memory.hicache_storage_prefetch_retry_poll_interval = interval
        self.memory.hicache_storage_prefetch_retry_max_attempts = max_attempts
        self._sweep(self)
        return self.asked


SWEEP = "Scheduler._retry_missed_storage_prefetches"
POP = "UnifiedRadixCache.pop_storage_prefetch_miss"


@pytest.fixture(scope="module")
def seed() -> Callable[[], Seed]:
    """The sweep of the 0.5.19 wheel."""
    memory = SimpleNamespace()
    quiet = SimpleNamespace(debug=lambda *_: None)
    functions = excerpt(
        wheel("0.5.19", "managers/scheduler.py"), [SWEEP], get_memory=lambda: memory, logger=quiet
    ) | excerpt(wheel("0.5.19", "mem_cache/unified_radix_cache.py"), [POP])
    return lambda: Seed(functions, memory)


rid = st.sampled_from(RIDS)
limits = st.tuples(st.sampled_from([2, 2, 2, 3, 1, 0]), st.sampled_from([2, 2, 2, 1, 0]))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("poll_miss"), rid, st.sampled_from([None, 64])),
        st.tuples(st.just("refetch"), rid, st.sampled_from([None, 64])),
        st.tuples(st.sampled_from(["cancel", "leave", "join", "first", "forgive", "spend"]), rid, st.none()),
        st.tuples(st.just("clear"), st.none(), st.none()),
        st.tuples(st.just("pop_ready"), limits, st.none()),
        st.tuples(st.just("pop_ready"), limits, st.none()),
        st.tuples(st.just("pop_ready"), limits, st.none()),
    ),
    min_size=10,
    max_size=50,
)
thorough = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def play(one: Any, script: list[tuple[Any, ...]], sweep: Callable[..., list[Any]]) -> Iterator[Any]:
    """What the object decides, call by call, with a queue that the script changes; asked ones spend."""
    reqs = {name: Req(name) for name in RIDS}
    queue = list(reqs.values())[1:]
    for call, what, end in script:
        match call:
            case "pop_ready":
                yield [(req.rid, hit_end) for req, hit_end in sweep(one, queue, *what)]
                yield [(req.rid, req.storage_prefetch_retry_attempts) for req in queue]
            case "clear":
                one.clear()
            case "leave":
                queue = [req for req in queue if req.rid != what]
            case "join" if reqs[what] not in queue:
                queue.append(reqs[what])
            case "first" if reqs[what] in queue:
                queue.sort(key=lambda req: req.rid != what)
            case "forgive":
                reqs[what].storage_prefetch_retry_attempts = 0
            case "spend":
                reqs[what].storage_prefetch_retry_attempts += 1
            case "poll_miss" | "refetch":
                getattr(one, call)(what, end)
            case "cancel":
                one.cancel(what)


def by_retries(one: Any, queue: list[Req], interval: int, max_attempts: int) -> list[tuple[Req, int | None]]:
    ready: list[tuple[Req, int | None]] = one.pop_ready(queue, interval, max_attempts)
    for req, _ in ready:
        req.storage_prefetch_retry_attempts += 1
    return ready


class Marks:
    """The markers of 0.5.19 by the names that `play` calls."""

    def __init__(self, markers: set[str], sweep: Callable[..., Any]) -> None:
        self.sweep, self.clear, self.cancel = sweep, markers.clear, markers.discard
        self._markers = markers

    def poll_miss(self, rid: str, end: int | None) -> None:
        self._markers.add(rid)

    refetch = poll_miss


def by_markers(
    one: Marks, queue: list[Req], interval: int, max_attempts: int
) -> list[tuple[Req, int | None]]:
    return [(req, None) for req in one.sweep(queue, interval, max_attempts)]


@real
@pytest.mark.parametrize("original", SINCE_0520, indirect=True)
@given(script=steps)
@thorough
def test_under_the_profile_of_0_5_23_every_decision_is_the_originals(
    original: Callable[[], Any], script: list[tuple[Any, ...]]
) -> None:
    ours, theirs = StoragePrefetchRetries(), original()
    for mine, its in zip(play(ours, script, by_retries), play(theirs, script, by_retries), strict=True):
        assert mine == its
    assert {
        rid: (one.immediate, one.storage_hit_end, one.due_step) for rid, one in ours._pending.items()
    } == {rid: (one.immediate, one.storage_hit_end, one.due_step) for rid, one in theirs._pending.items()}


@real
@given(script=steps)
@thorough
def test_under_the_profile_of_0_5_19_every_decision_is_the_originals(
    seed: Callable[[], Seed], script: list[tuple[Any, ...]]
) -> None:
    ours, theirs = MissMarkers(), seed()
    marks = Marks(theirs._storage_prefetch_missed_rids, theirs.sweep)
    both = zip(
        play(Marks(ours, ours.sweep), script, by_markers), play(marks, script, by_markers), strict=True
    )
    for mine, its in both:
        assert mine == its
    assert ours == theirs._storage_prefetch_missed_rids


def mutant(before: str, after: str) -> ModuleType:
    """The module with one place changed."""
    text = Path(retries.__file__).read_text()
    assert text.count(before) == 1, f"{before} is no longer in the source once"
    module = ModuleType("hicache_fsm.sglang.excerpt")
    exec(compile(text.replace(before, after), "mutant", "exec"), module.__dict__)
    return module


@real
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("marker.due_step = step + interval", "marker.due_step = step + interval + 1"),
        ("due <= step] if", "due < step] if"),
        (
            """budget_left = req.storage_prefetch_retry_attempts < max_attempts
            due = """,
            """budget_left = req.storage_prefetch_retry_attempts <= max_attempts
            due = """,
        ),
        ("self._pending[rid] = marker", 'self._pending["a"] = marker'),
        ("if not self._fresh and not self._ripe", "if not self._fresh"),
        ("not head.immediate and rules.head == DROP", "rules.head == DROP"),
        (
            "Marker(self.rules.constants.immediate_known_hit, storage_hit_end)",
            "Marker(False, storage_hit_end)",
        ),
        ("interval <= 0 and not marker.immediate", "interval < 0"),
    ],
    ids=["due late", "due one pass late", "cap", "key", "wheel", "head", "known hit", "interval 0"],
)
def test_a_planted_fault_in_the_retries_shows_against_the_original(
    original: Callable[[], Any], before: str, after: str
) -> None:
    broken = mutant(before, after).StoragePrefetchRetries

    @given(script=steps)
    @settings(max_examples=2_000, database=None, derandomize=True, deadline=None, phases=[Phase.generate])
    def differs(script: list[tuple[Any, ...]]) -> None:
        ours = play(broken(), script, by_retries)
        assert all(mine == its for mine, its in zip(ours, play(original(), script, by_retries), strict=True))

    with pytest.raises((AssertionError, KeyError)):
        differs()


@real
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "retry_due(req.storage_prefetch_retry_wait_polls, interval)",
            "retry_due(req.storage_prefetch_retry_wait_polls + 1, interval)",
        ),
        ("rules.missed[2 * budget_left]", "rules.missed[2]"),
        ("if pop(req.rid):", "if pop(waiting_queue[-1].rid):"),
    ],
    ids=["due", "cap", "key"],
)
def test_a_planted_fault_in_the_markers_shows_against_the_original(
    seed: Callable[[], Seed], before: str, after: str
) -> None:
    broken = mutant(before, after).MissMarkers

    @given(script=steps)
    @settings(max_examples=2_000, database=None, derandomize=True, deadline=None, phases=[Phase.generate])
    def differs(script: list[tuple[Any, ...]]) -> None:
        ours, theirs = broken(), seed()
        marks = Marks(theirs._storage_prefetch_missed_rids, theirs.sweep)
        both = zip(
            play(Marks(ours, ours.sweep), script, by_markers), play(marks, script, by_markers), strict=True
        )
        assert all(mine == its for mine, its in both)

    with pytest.raises((AssertionError, KeyError)):
        differs()


def swept(one: StoragePrefetchRetries, queue: list[Req], passes: int, interval: int = 1) -> list[int]:
    """The passes, from 1, in which something is asked again."""
    return [number for number in range(1, passes + 1) if one.pop_ready(queue, interval, 8)]


def test_a_miss_is_asked_again_once_after_the_interval_36227() -> None:
    one, queue = StoragePrefetchRetries("recommended"), [Req("head"), Req("r")]
    one.poll_miss("r", 64)
    assert swept(one, queue, 10, interval=3) == [4]


def test_the_marker_of_an_earlier_attempt_is_not_the_next_ones_39318() -> None:
    asked = {}
    for profile in ("sglang-0.5.23", "recommended"):
        one, queue = StoragePrefetchRetries(profile), [Req("head"), Req("r")]
        one.poll_miss("r")
        one.begin(queue[1])
        asked[profile] = swept(one, queue, 5)
    assert asked == {"sglang-0.5.23": [2], "recommended": []}


def test_a_request_that_comes_back_has_its_whole_budget_where_the_profile_says() -> None:
    for markers, spent in ((MissMarkers("seed"), 4), (MissMarkers("recommended"), 0)):
        req = Req("r", storage_prefetch_retry_attempts=4)
        markers.begin(req)
        assert req.storage_prefetch_retry_attempts == spent


def test_nothing_is_armed_that_issued_no_question_40042() -> None:
    armed = {}
    for profile in ("sglang-0.5.23", "recommended"):
        one = StoragePrefetchRetries(profile)
        with one.asking():
            one.poll_miss("declined")
        one.poll_miss("asked")
        armed[profile] = set(one._pending)
    assert armed == {"sglang-0.5.23": {"declined", "asked"}, "recommended": {"asked"}}


def test_nothing_is_armed_that_issued_no_question_in_0_5_19_either_40042() -> None:
    for profile, marked in (("seed", {"r"}), ("recommended", set())):
        markers = MissMarkers(profile)
        with markers.asking():
            markers.add("r")
        assert markers == marked


def test_the_pacing_flag_does_not_outlive_the_attempt_under_the_recommended_profile() -> None:
    for profile, asked in (("seed", True), ("recommended", False)):
        markers, queue = MissMarkers(profile), [Req("head"), Req("r")]
        markers.add("r")
        assert list(markers.sweep(queue, 1, 4)) == []
        markers.begin(queue[1])
        assert bool(list(markers.sweep(queue, 1, 4))) == asked


def test_interval_0_leaves_no_marker_under_the_recommended_profile() -> None:
    one, queue = StoragePrefetchRetries("recommended"), [Req("head"), Req("r")]
    one.refetch("r")
    assert one.pop_ready(queue, 0, 8) == []
    assert one._pending == {}


@pytest.mark.parametrize("wrap", [dict, lambda flags: SimpleNamespace(**flags)])
def test_sglangs_flags_are_taken_as_they_are(wrap: Callable[[dict[str, int]], object]) -> None:
    flags = {retries.INTERVAL: 3, retries.MAX_ATTEMPTS: 1}
    one, queue = StoragePrefetchRetries("sglang-0.5.23", wrap(flags)), [Req("head"), Req("r")]
    one.poll_miss("r")
    assert [len(one.pop_ready(queue)) for _ in range(5)] == [0, 0, 0, 1, 0]
    queue[1].storage_prefetch_retry_attempts = 1
    one.poll_miss("r")
    assert [len(one.pop_ready(queue)) for _ in range(5)] == [0] * 5


@pytest.mark.parametrize(
    ("profile", "flags", "told"),
    [("0.5.23", None, "unknown profile"), ("seed", {retries.INTERVAL: "8"}, "whole number of passes")],
)
def test_a_configuration_that_makes_no_sense_is_one_line(profile: str, flags: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        StoragePrefetchRetries(profile, flags)


def test_a_pass_with_nothing_due_looks_at_no_request() -> None:
    class Untouchable(list[Req]):
        def __iter__(self) -> Iterator[Req]:
            raise AssertionError("walked the queue")

    one, queue = StoragePrefetchRetries(), [Req("head"), Req("r")]
    one.poll_miss("r")
    one.pop_ready(queue, 5, 8)
    assert [one.pop_ready(Untouchable(queue), 5, 8) for _ in range(4)] == [[]] * 4
