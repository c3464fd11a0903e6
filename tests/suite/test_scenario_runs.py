"""Scenarios run: the list of outcomes is exact, and each way to fail is told by its name."""

from pathlib import Path

import pytest

from hicache_fsm.sglang.install import DEFAULT_VERSIONS, VERSIONS
from hicache_fsm.spec import load_spec
from hicache_fsm.suite.expected import (
    DIFFERS,
    FILE,
    ExpectedError,
    Outcomes,
    dump_expected,
    key,
    load_expected,
    record,
    surprises,
)
from hicache_fsm.suite.protocol import CacheUnderTest, Event, Observed, Reply, UnsupportedError, World
from hicache_fsm.suite.runner import run
from hicache_fsm.suite.scenario import Scenario, collect, load, loads, shipped
from hicache_fsm.suite.targets import target

PROFILES = ("recommended", "seed", "sglang-0.5.23")
COLUMNS = [(name, profile) for name in ("runtime", "model") for profile in PROFILES]

UPSTREAM = tuple(f"sglang-{version}" for version in VERSIONS)
LAID_OUT = tuple(f"sglang-{version}" for version in DEFAULT_VERSIONS)


@pytest.fixture(scope="module")
def stories() -> list[Scenario]:
    return [load(path) for path in collect([shipped()])]


@pytest.fixture(scope="module")
def expected() -> Outcomes:
    return load_expected(shipped() / FILE)


@pytest.mark.parametrize(("name", "profile"), COLUMNS)
def test_each_scenario_comes_out_as_listed(
    name: str, profile: str, stories: list[Scenario], expected: Outcomes
) -> None:
    driven = target(name, profile, spec=load_spec())
    runs = [run(driven, story) for story in stories]
    assert surprises(expected, key(name, profile), runs) == []


@pytest.mark.parametrize(("profile", "version"), [("seed", "0.5.19"), ("sglang-0.5.23", "0.5.23")])
def test_where_a_profile_is_not_as_its_release_the_list_says_why(
    profile: str, version: str, expected: Outcomes
) -> None:
    outcomes = {
        name: (each[f"runtime/{profile}"], each[f"sglang/{version}"]) for name, each in expected.items()
    }
    differing = {
        name
        for name, (ours, real) in outcomes.items()
        if ours != real and not real.startswith("inexpressible")
    }
    assert differing == {name for name, each in expected.items() if f"{DIFFERS}/{profile}" in each}


@pytest.mark.sglang
@pytest.mark.parametrize("name", LAID_OUT)
def test_each_scenario_comes_out_as_listed_on_the_real_engine(
    name: str, stories: list[Scenario], expected: Outcomes
) -> None:
    engine = target(name)
    try:
        runs = [run(engine, story) for story in stories]
    finally:
        engine.stop()  # type: ignore[attr-defined]
    assert surprises(expected, key(name, ""), runs) == []


def test_the_list_has_every_scenario_and_every_column(stories: list[Scenario], expected: Outcomes) -> None:
    columns = {key(*column) for column in COLUMNS} | {key(name, "") for name in UPSTREAM}
    assert {story.id for story in stories} == set(expected)
    told = [{column for column in each if not column.startswith(DIFFERS)} for each in expected.values()]
    assert all(outcomes == columns for outcomes in told)


def test_every_scenario_passes_on_the_runtime_under_the_projects_own_rules(expected: Outcomes) -> None:
    other = {name: each["runtime/recommended"] for name, each in expected.items()}
    assert {name: outcome for name, outcome in other.items() if outcome != "pass"} == {}


def test_the_rules_of_each_upstream_line_fail_some(expected: Outcomes) -> None:
    for profile in ("seed", "sglang-0.5.23"):
        assert sum(each[f"runtime/{profile}"].startswith("fail") for each in expected.values()) >= 8


def story(*lines: str, world: str = "") -> Scenario:
    steps = "\n".join(lines)
    return loads(
        f'id = "x"\nabout = "x"\nupstream = []\nsteps = """\n{steps}\n"""\n[world]\nprompts = {{ r = "a" }}\n{world}'
    )


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (["enq r", "miss r", "admit r"], "pass"),
        (["enq r", "hit r 1"], "fail at step 2: refused"),
        (["enq r", "park r"], "fail at step 2: absent"),
        (["enq r", "!miss r"], "fail at step 2: happened"),
        (["enq r", "?park r", "miss r"], "pass"),
        (["enq r", 'expect state(r) == "missed"'], "fail at step 2: expect"),
        (["enq r", "admit r within 2"], "fail at step 2: progress"),
        (["enq r", "miss r", "admit r within 2"], "pass"),
    ],
)
def test_a_step_fails_by_its_name(lines: list[str], verdict: str) -> None:
    assert str(run(target("runtime"), story(*lines)).verdict) == verdict


def test_a_broken_invariant_fails_the_step_that_broke_it() -> None:
    lines = ["enq r", "hit r", "done r", "abandon r"]
    ran = run(target("runtime", "seed"), story(*lines, world='storage = "a"'))
    assert str(ran.verdict) == "fail at step 4: no-residue"


def test_only_judged_invariants_fail_a_scenario() -> None:
    text = 'id = "x"\nabout = "x"\nupstream = []\njudges = ["paced"]\nsteps = """\nenq r\nmiss r\nabandon r\n{}"""\n'
    world = '[world]\nprompts = { r = "a" }\n'
    assert str(run(target("runtime", "seed"), loads(text.format("") + world)).verdict) == "pass"
    held = run(target("runtime", "seed"), loads(text.format("holds marker-owned\n") + world))
    assert str(held.verdict) == "fail at step 4: marker-owned"


class Mute:
    """A cache that has no word for anything."""

    name = "mute"

    def build(self, world: World) -> CacheUnderTest:
        if world.ranks > 1:
            raise UnsupportedError("one rank only")
        return self

    def drive(self, event: Event) -> Reply:
        from hicache_fsm.suite.protocol import Answer

        return Reply(Answer.INEXPRESSIBLE, "no word for it")

    def observe(self) -> Observed:
        return Observed(0, {})

    def close(self) -> None: ...


def test_what_a_target_cannot_express_is_reported_and_never_skipped() -> None:
    ran = run(Mute(), story("enq r"))
    assert (str(ran.verdict), ran.verdict.why) == ("inexpressible at step 1", "no word for it")
    assert str(run(Mute(), story("?enq r")).verdict) == "pass"
    assert str(run(Mute(), story("?enq r", "expect host_free == 3")).verdict) == "inexpressible at step 2"
    assert str(run(Mute(), story("enq r", world="ranks = 2")).verdict) == "inexpressible"


def test_outcomes_are_written_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / FILE
    ran = [run(target("runtime"), story("enq r"))]
    record(path, key("runtime", "recommended"), ran)
    record(path, key("sglang-0.5.23", "recommended"), ran)
    listed = load_expected(path)
    assert listed == {"x": {"runtime/recommended": "pass", "sglang/0.5.23": "pass"}}
    assert dump_expected(listed) == path.read_text(encoding="utf-8")


def test_an_outcome_that_is_other_than_listed_is_told() -> None:
    ran = [run(target("runtime"), story("enq r"))]
    assert surprises({"x": {"runtime/seed": "fail at step 1: paced"}}, "runtime/seed", ran) == [
        "x on runtime/seed: pass, expected fail at step 1: paced"
    ]
    assert "not listed" in surprises({}, "runtime/seed", ran)[0]


def test_a_list_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("x = 3", encoding="utf-8")
    with pytest.raises(ExpectedError, match="no table of outcomes"):
        load_expected(path)
