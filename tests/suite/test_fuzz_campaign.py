"""Campaigns: what they find is small, told once, repeats by its number, and comes out whole however they end."""

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hicache_fsm.cli.app import app
from hicache_fsm.spec import load_spec
from hicache_fsm.suite.campaign import (
    Campaign,
    failure_of,
    one_run,
    run_batch,
    run_campaign,
    run_share,
    shrink_failure,
)
from hicache_fsm.suite.coverage import Coverage, last_exit
from hicache_fsm.suite.findings import scenario_of
from hicache_fsm.suite.language import parse
from hicache_fsm.suite.plants import PLANTS, find
from hicache_fsm.suite.play import play
from hicache_fsm.suite.protocol import Answer, CacheUnderTest, Event, Observed, Reply, RequestView, World
from hicache_fsm.suite.scenario import dumps, loads
from hicache_fsm.suite.targets.runtime import RuntimeTarget

ROOT = Path(__file__).parents[2]
SPEC = load_spec()
HEALTHY = RuntimeTarget(spec=SPEC)
PLANTED = PLANTS["abort keeps its pin"].target(SPEC)


def test_a_campaign_tells_each_finding_once_with_the_exit_that_broke_it() -> None:
    campaign = run_campaign(PLANTED, seconds=2, exact=True)
    assert ("no-residue", "abort") in campaign.findings
    small = campaign.findings["no-residue", "abort"]
    assert len(small.events) <= 3
    assert sum(campaign.runs_of.values()) > len(campaign.findings)


def test_a_campaign_without_findings_holds_and_counts_what_it_reached() -> None:
    campaign = run_campaign(HEALTHY, seconds=1, seed=5, exact=True)
    assert campaign.findings == {}
    report = campaign.as_json(SPEC.machines["prefetch"])
    assert report["coverage"]["reached"] + len(report["coverage"]["missing"]) == report["coverage"]["changes"]
    assert report["coverage"]["states"]["transferring"] > 0


def test_a_run_repeats_by_its_seed_and_number_and_a_batch_stops_in_time() -> None:
    first, problems = one_run(PLANTED, 7, 1, exact=True)
    again, _ = one_run(PLANTED, 7, 1, exact=True)
    assert first.events == again.events
    assert run_batch(PLANTED, 7, range(1000), 0.0, True).coverage.runs <= 1
    assert first.world == again.world
    assert bool(problems) == bool(one_run(PLANTED, 7, 1, exact=True)[1])


def test_what_shows_only_at_rest_takes_the_way_to_rest_into_its_scenario() -> None:
    planted = PLANTS["orphans keep their pages"].target(SPEC)
    number = next(n for n in range(100) if one_run(planted, 0, n, exact=False)[1])
    run, problems = one_run(planted, 0, number, exact=False)
    small = shrink_failure(planted, failure_of(run, problems[0], number), exact=False)
    scenario = loads(dumps(scenario_of(small, "runtime")))
    assert len(small.events) <= 6
    assert play(planted, scenario.world, scenario.events)[1]
    assert not play(HEALTHY, scenario.world, scenario.events)[1]


def test_a_crash_of_the_cache_is_a_finding() -> None:
    class Crashing(RuntimeTarget):
        def build(self, world: World):  # type: ignore[no-untyped-def]
            cache = super().build(world)
            cache.on_flush = lambda event: 1 / 0  # type: ignore[attr-defined]
            return cache

    problem = play(Crashing(spec=SPEC), World({"r": ("p",)}), [Event("flush")])[1][0]
    assert (problem.invariant, problem.message) == ("crash", "ZeroDivisionError: division by zero")


def test_coverage_counts_moves_of_one_attempt_and_exits_with_their_reason() -> None:
    def seen(state: str, attempt: int = 0) -> Observed:
        return Observed(0, {"r": RequestView(state, attempt)})

    coverage, done = Coverage(), Reply(Answer.DONE)
    coverage.see(parse("miss r"), done, seen("probing"), seen("missed"))
    coverage.see(parse("abort r why=client"), done, seen("missed"), seen("aborted"))
    coverage.see(parse("enq r"), done, seen("aborted"), seen("probing", 1))
    assert coverage.moves == {("probing", "missed"): 1, ("missed", "aborted"): 1}
    assert coverage.exits == {"abort client": 1}
    assert ("probing", "missed") in coverage.reached(SPEC.machines["prefetch"])
    assert last_exit([parse("abort r why=client"), parse("tick")]) == "abort client"
    assert last_exit([parse("tick")]) == "-"


def fuzz(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["fuzz", *arguments])
    return ran.exit_code, ran.output


def test_the_command_holds_for_the_runtime_and_prints_what_it_reached() -> None:
    code, output = fuzz("--minutes", "0.02")
    assert code == 0
    assert "holds: nothing was found" in output
    assert "changes of state in spec/prefetch.toml were seen" in output


def test_the_command_writes_a_scenario_for_each_finding_and_exits_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "cache_adapter")
    code, output = fuzz("--target", "adapter:leaky", "--minutes", "0.02", "--out", str(tmp_path))
    assert code == 1
    assert "no-residue" in output
    paths = list(tmp_path.glob("found-*.toml"))
    assert paths
    for path in paths:
        assert loads(path.read_text(), str(path)).events


def test_json_is_one_document_with_the_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "cache_adapter")
    code, output = fuzz("--target", "adapter:leaky", "--minutes", "0.02", "--json")
    assert code == 1
    report = json.loads(output)
    assert report["findings"][0]["scenario"].startswith("id = ")
    assert report["coverage"]["runs"] > 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--target", "nothing"), 'no target "nothing"'),
        (("--profile", "recomended"), "unknown profile recomended"),
        (("--backend", "nowhere", "--jobs", "2"), "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: tuple[str, ...], says: str) -> None:
    code, output = fuzz("--minutes", "0.02", *arguments)
    assert code == 2
    assert says in output
    assert len(output.strip().splitlines()) == 1


def test_ctrl_c_ends_a_campaign_with_what_was_found() -> None:
    def interrupt(campaign: Campaign) -> None:
        if campaign.findings:
            raise KeyboardInterrupt

    campaign = run_campaign(PLANTED, seconds=60, exact=True, tell=interrupt)
    assert campaign.interrupted
    assert campaign.findings
    assert campaign.seconds < 60


def test_ctrl_c_within_a_batch_keeps_the_runs_before_it() -> None:
    class Interrupted(RuntimeTarget):
        def build(self, world: World) -> CacheUnderTest:
            if next(builds) == 3:
                raise KeyboardInterrupt
            return super().build(world)

    builds = itertools.count()
    batch = run_batch(Interrupted(spec=SPEC), 0, range(10), 60, True)
    assert batch.interrupted
    assert batch.coverage.runs == 3


def test_a_worker_stops_what_its_copy_of_the_target_started() -> None:
    class Engine(RuntimeTarget):
        def stop(self) -> None:
            stopped.append(True)

    stopped: list[bool] = []
    assert run_share(Engine(spec=SPEC), 0, range(1), 10, True).coverage.runs == 1
    assert stopped == [True]


def test_an_engine_that_cannot_be_built_any_more_is_a_finding_and_loses_none() -> None:
    class Breaking(RuntimeTarget):
        def build(self, world: World) -> CacheUnderTest:
            if next(builds) >= 3:
                raise OSError("the engine is gone")
            return super().build(world)

    builds = itertools.count()
    batch = run_batch(Breaking(spec=SPEC), 0, range(10), 60, True)
    assert batch.coverage.runs == 3
    assert batch.failures[0].problem.message == "the cache could not be built: OSError: the engine is gone"
    builds = itertools.count(3)
    with pytest.raises(OSError, match="the engine is gone"):
        run_batch(Breaking(spec=SPEC), 0, range(10), 60, True)


@pytest.mark.slow
def test_two_workers_find_what_one_finds() -> None:
    campaign = run_campaign(PLANTED, seconds=6, jobs=2, exact=True)
    assert ("no-residue", "abort") in campaign.findings


def test_the_budget_of_the_plants_is_counted_in_runs_and_events() -> None:
    found = find(PLANTED)
    assert found is not None
    assert found.runs <= found.events
