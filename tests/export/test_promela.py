"""The Promela export, and SPIN's count where SPIN is installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hicache_fsm.export import promela
from hicache_fsm.model import system
from hicache_fsm.spec import load_spec

SPEC = load_spec()
needs_spin = pytest.mark.skipif(
    not (shutil.which("spin") and shutil.which("cc")), reason="SPIN or a C compiler is missing"
)


def stored(text: str, folder: Path) -> int:
    """The distinct states that SPIN's verifier stores."""
    (folder / "model.pml").write_text(text, encoding="utf-8")
    said = ""
    for command in (
        "spin -a model.pml",
        "cc -O1 -w -DSAFETY -DNOREDUCE -DNOFAIR -o pan pan.c",
        "./pan -m1000000 -w18 -n",
    ):
        said = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "errors: 0" in said
    return int(re.findall(r"(\d+) states, stored", said)[0])


@needs_spin
@pytest.mark.parametrize(
    ("name", "distinct"), [("node.three", 305), ("ranks.two", 27), ("admission-disabled.interval", 1907)]
)
def test_spin_stores_as_many_states(name: str, distinct: int, tmp_path: Path) -> None:
    assert stored(promela(system(SPEC, "recommended", name)), tmp_path) == distinct


@needs_spin
@pytest.mark.slow
def test_spin_stores_as_many_states_of_two_requests(tmp_path: Path) -> None:
    assert stored(promela(system(SPEC, "recommended", "admission.pair")), tmp_path) == 19794


def test_every_variable_and_action_is_in_the_text() -> None:
    built = system(SPEC, "recommended", "node.two")
    text = promela(built)
    assert text.count(":: d_step") == len(built.actions)
    declared = re.findall(r"^(?:byte|short) \w+ = (-?\d+);", text, re.MULTILINE)
    assert [int(value) for value in declared] == [built.initial[v.name] for v in built.layout.variables]
