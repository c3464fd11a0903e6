"""A lifecycle on the pools, the tree and the controller of the real SGLang; `pools_scenarios.py` has the scenarios."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_support import BETWEEN

from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, require

pytestmark = pytest.mark.sglang
Seen = dict[str, list[str]]
Play = Callable[[str], Seen]

VERSIONS = (
    "0.5.23",
    pytest.param("0.5.19", marks=pytest.mark.slow),
    *BETWEEN,
)
LED = (
    "journey",
    "miss",
    "abort while reading",
    "cut while reading",
    "completed in two",
    "leave while copying",
    "failed write",
    "parked",
    "flush while reading",
    "grown prefix",
    "full pools",
    "copy that cannot start",
    "parent",
)
EFFECTS = (
    "ask",
    "lock_anchor",
    "take_pages",
    "end_operation",
    "unlock_anchor",
    "stage_hold",
    "free_pages",
    "orphan_operation",
    "cut_operation",
    "free_orphan_pages",
    "consume_hold",
    "release_hold",
    "launch_write",
    "settle_write",
    "free_both",
)
DENSE: dict[str, object] = {
    "buffer_pipeline": object(),
    "tree_components": (1,),
    "tree_core": SimpleNamespace(is_eagle=False),
    "enable_storage": True,
    "tp_world_size": 1,
    "pp_size": 1,
}
BROKEN = {
    "Rushed: abort while reading": "host pages while a thread reads into them",
    "Forgetful: take_pages raises after, given up": "operation 1 is over",
    "Sticky: cut while reading": "is locked",
    "Shifted: journey": "the KV bytes are those that were written",
    "Credulous: failed write": "['believed', 'believed']",
}


def _told_by(script: str, version: str, folder: Path) -> dict[str, Any]:
    """The result of a script beside this file, run on the real SGLang."""
    try:
        require(version)
    except HarnessMissingError as missing:
        pytest.skip(str(missing))
    command = [str(env_python(DEFAULT_ROOT)), str(Path(__file__).with_name(script)), version]
    environment = child_environment(version, folder)
    done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False, timeout=300)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(results[0].removeprefix("RESULT "))
    return told


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """``play(version)``: what each scenario left or got wrong; one engine a version."""

    @functools.cache
    def run(version: str) -> Seen:
        return _told_by("pools_scenarios.py", version, tmp_path_factory.mktemp("pools"))

    return run


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", LED)
def test_nothing_is_wrong_or_left(play: Play, version: str, scenario: str) -> None:
    assert play(version)[scenario] == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_that_raises_leaves_nothing_acquired(play: Play, version: str, effect: str) -> None:
    raised = {name: found for name, found in play(version).items() if name.startswith(f"{effect} raises")}
    # only a node that is half freed must be freed in the end (#36637)
    assert len(raised) == (2 if effect == "free_both" else 4)
    assert not any(raised.values()), raised


@pytest.mark.parametrize("version", VERSIONS)
def test_the_books_agree_on_random_walks_with_faults(play: Play, version: str) -> None:
    walks = {name: found for name, found in play(version).items() if name.startswith("walk")}
    assert walks
    assert not any(walks.values()), walks


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_an_unmodified_scheduler_serves_a_prefetch_from_its_file_storage(
    tmp_path: Path, version: str
) -> None:
    seen = _told_by("pools_on_files.py", version, tmp_path)
    assert seen == {
        "states": ["probing", "transferring", "loaded"],
        "admitted": 64,
        "same": True,
        "left": [],
        "free": 512,
        "idle": True,
        "empty": True,
    }


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({}, "buffer_only alone"),
        ({"buffer_pipeline": object(), "tree_components": (1, 2)}, "sidecar pools"),
        (DENSE | {"tree_core": SimpleNamespace(is_eagle=True)}, "EAGLE"),
        (DENSE | {"enable_storage": False}, "attach one first"),
        (DENSE | {"tp_world_size": 2}, "one rank alone"),
        (DENSE | {"buffer_pipeline": SimpleNamespace(anchor_lock_enabled=False)}, "ANCHOR_LOCK"),
    ],
)
def test_a_scheduler_that_is_not_covered_is_refused_with_the_reason(
    tree: dict[str, object], told: str
) -> None:
    from hicache_fsm.sglang.pools.versions import release

    with pytest.raises(ValueError, match=told):
        release(SimpleNamespace(tree_cache=SimpleNamespace(**tree)))


@pytest.mark.parametrize("broken", BROKEN)
def test_a_planted_bug_is_seen(play: Play, broken: str) -> None:
    assert BROKEN[broken] in "\n".join(play("0.5.23")[broken])
