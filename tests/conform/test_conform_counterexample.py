"""Counterexamples on the shipped runtime: a bug that it lacks parts, what it does is followed to the end."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hicache_fsm.cli.follow_commands import follow
from hicache_fsm.cli.tlc_commands import tlc
from hicache_fsm.conform.counterexample import CounterexampleError, FollowedRun, follow_counterexample
from hicache_fsm.tlc import TlcError, Tools, locate, run, tla_dir
from hicache_fsm.tlc.counterexample import Origin, origin, to_counterexample
from hicache_fsm.tlc.manifest import load_manifest

MODEL = """
[model]
system = "admission"
bounds = { requests = 1, chain = 1, host = 1, device = 4, context = 2, anchors = [1], attempts = 1 }
constants = { interval = 1, max_attempts = 1 }
"""

ASKED = '[[steps]]\nevent = "enqueue"\nrequest = "r0"\nafter = { "state[0]" = "probing", "op[0]" = "asking", '
ASKED += '"pin[0]" = "pinned", "pinned" = "1", "issued[0]" = "TRUE" }\n'
MISSED = '[[steps]]\nevent = "miss"\nrequest = "r0"\nafter = { "state[0]" = "missed", "op[0]" = "none", '
MISSED += '"marker[0]" = "1", "pin[0]" = "released", "pinned" = "0" }\n'


@pytest.fixture(scope="module")
def tools() -> Tools:
    try:
        return locate()
    except TlcError as error:
        pytest.skip(str(error))


@pytest.fixture
def app() -> typer.Typer:
    commands = typer.Typer()
    commands.command()(follow)
    commands.command()(tlc)
    return commands


def counterexample(tools: Tools, model: str) -> str:
    entry = load_manifest(tla_dir())[model]
    trace = run(tools, entry.job(tla_dir())).trace()
    assert trace is not None
    return to_counterexample(trace, model, origin(entry.system, (tla_dir() / entry.cfg).read_text()))


def replayed(tools: Tools, model: str) -> FollowedRun:
    return follow_counterexample(counterexample(tools, model))


@pytest.mark.tlc
@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("MCAdmission_bug_abort_keeps_hold", "r0.hold is 0, not 1"),
        ("MCAdmission_bug_abort_keeps_marker", "r0.marker is none, not attempt 0"),
        ("MCNode_bug_evicts_pinned", 'the runtime refuses "evict"'),
        ("MCNode_bug_frees_tomb_twice", "swa_free is 1, not 2"),
    ],
)
def test_a_bug_that_the_runtime_lacks_parts_at_the_faulty_step(tools: Tools, model: str, why: str) -> None:
    found = replayed(tools, model)
    assert found.outcome == "parted"
    assert why in found.why
    assert [row.followed for row in found.rows] == [True] * (found.steps - 1) + [False]


@pytest.mark.tlc
def test_a_finding_about_upstream_is_followed_under_its_profile(tools: Tools) -> None:
    found = replayed(tools, "MCAdmission_sglang_pin_owned")
    assert found.outcome == "followed"
    assert found.model == "admission (sglang-0.5.23 with interval = 1, max_attempts = 1)"


@pytest.mark.tlc
@pytest.mark.parametrize("model", ["MCAdmission_sglang_one_in_flight", "MCBelief_bug_keeps_unkeyed"])
def test_a_step_that_looks_like_a_right_one_is_never_a_verdict(tools: Tools, model: str) -> None:
    found = replayed(tools, model)
    assert found.outcome == "undetermined"
    assert all(row.followed for row in found.rows)


@pytest.mark.tlc
def test_a_witness_of_reachability_is_followed_to_the_end(tools: Tools) -> None:
    found = replayed(tools, "MCAdmission_debug_never_retries")
    assert found.outcome == "followed"
    assert found.rows[-1].state["r0.state"] == "retrying"


@pytest.mark.tlc
def test_what_goes_on_for_ever_is_never_a_verdict(tools: Tools) -> None:
    found = replayed(tools, "MCAdmission_bug_wedged")
    assert found.outcome == "undetermined"
    assert "for ever" in found.why


@pytest.mark.tlc
def test_the_commands_write_a_counterexample_and_follow_it(
    tools: Tools, app: typer.Typer, tmp_path: Path
) -> None:
    file = tmp_path / "counterexample.toml"
    model = "MCAdmission_bug_abort_keeps_marker"
    assert CliRunner().invoke(app, ["tlc", model, "--counterexample", str(file)]).exit_code == 0
    found = CliRunner().invoke(app, ["follow", str(file)])
    assert found.exit_code == 0, found.output
    assert "parted at step 3 of 3" in found.output


def test_what_a_step_leaves_alone_counts_as_well() -> None:
    kept = ASKED + MISSED + '[[steps]]\nevent = "abort"\nrequest = "r0"\nafter = { "state[0]" = "aborted" }\n'
    found = follow_counterexample(MODEL + kept)
    assert (found.outcome, found.why) == ("parted", "r0.marker is none, not attempt 0")
    dropped = kept.replace('"aborted"', '"aborted", "marker[0]" = "0"')
    assert follow_counterexample(MODEL + dropped).outcome == "followed"


def test_a_step_may_leave_its_subject_out() -> None:
    assert follow_counterexample(MODEL + ASKED.replace('request = "r0"\n', "")).outcome == "followed"


def test_a_step_that_cannot_happen_here_parts() -> None:
    found = follow_counterexample(MODEL + '[[steps]]\nevent = "done"\nafter = { "state[0]" = "loaded" }\n')
    assert (found.outcome, found.rows[0].changed) == ("parted", {})


def test_a_step_without_a_public_call_is_undetermined() -> None:
    lapse = '[[steps]]\nevent = "lapse"\nafter = { "pin[0]" = "released", "pinned" = "0" }\n'
    assert follow_counterexample(MODEL + ASKED + lapse).outcome == "undetermined"


def test_a_named_configuration_will_do_for_sizes() -> None:
    model = '[model]\nsystem = "admission"\nconfiguration = "admission.pair"\n'
    assert follow_counterexample(model + ASKED).outcome == "followed"


@pytest.mark.parametrize(("steps", "code"), [(ASKED, 1), (ASKED.replace("asking", "reading"), 0)])
def test_the_exit_code_is_the_outcome(app: typer.Typer, tmp_path: Path, steps: str, code: int) -> None:
    file = tmp_path / "counterexample.toml"
    file.write_text(MODEL + steps)
    found = CliRunner().invoke(app, ["follow", str(file), "--json"])
    assert found.exit_code == code
    assert json.loads(found.stdout)["outcome"] == ("followed" if code else "parted")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "no counterexample"),
        (ASKED, "no \\[model\\]"),
        ("model = 1", "no \\[model\\]"),
        (MODEL, "no \\[\\[steps\\]\\]"),
        (MODEL + "[[steps]]\nevnt = 1\n", "step 1 has no event"),
        (MODEL + '[[steps]]\nevent = "wack"\nafter = 1\n', "after is no table"),
        (MODEL + '[[steps]]\nevent = "wack"\nafter = { nope = "1" }\n', "nope is no variable"),
        (MODEL + '[[steps]]\nevent = "wack"\nafter = { "stored" = "much" }\n', "stored cannot be much"),
        (MODEL.replace('"admission"', '"nope"') + ASKED, 'unknown system "nope"'),
        (MODEL.replace("host = 1", "hots = 1") + ASKED, "hots"),
        (MODEL.replace("host = 1", 'host = "1"') + ASKED, "host is a size"),
        (MODEL.replace("anchors = [1]", "anchors = []") + ASKED, "the bounds make no system"),
        (MODEL.replace("interval = 1", "intervall = 1") + ASKED, 'unknown constant "intervall"'),
        (MODEL.replace("[model]", '[model]\nprofile = "nope"') + ASKED, 'unknown profile "nope"'),
        ('[model]\nsystem = "ranks"\nbounds = { ranks = 2 }\n' + ASKED, "it has no ranks to replay"),
    ],
)
def test_a_malformed_counterexample_and_one_without_a_runtime_are_one_line_and_exit_2(
    app: typer.Typer, tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(CounterexampleError, match=said) as caught:
        follow_counterexample(text)
    assert "\n" not in str(caught.value)
    file = tmp_path / "counterexample.toml"
    file.write_text(text)
    assert CliRunner().invoke(app, ["follow", str(file)]).exit_code == 2


def test_a_missing_counterexample_exits_2(app: typer.Typer, tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["follow", str(tmp_path / "nope.toml")]).exit_code == 2


def test_a_cfg_tells_system_sizes_profile_and_bug() -> None:
    cfg = (tla_dir() / "MCAdmission_bug_wedged.cfg").read_text()
    found = origin("admission", cfg)
    assert (found.profile, found.constants["pin_fraction"], found.bounds["anchors"]) == (
        "recommended",
        0.5,
        (1, 2),
    )
    node = origin("node", (tla_dir() / "MCNode_bug_evicts_loading.cfg").read_text())
    assert node == Origin("node", bounds=node.bounds, toggles=("EvictsLoading",))
    assert node.bounds == {"nodes": 2, "loaders": 2, "holders": 2, "full": 2, "swa": 2}
