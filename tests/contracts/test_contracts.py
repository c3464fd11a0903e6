"""CrossHair on the pure rules, within a budget: it finds nothing in them, and every planted fault."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hicache_fsm

pytest.importorskip("crosshair")

PACKAGE = Path(hicache_fsm.__file__).parent
CONTRACTS = Path(__file__).with_name("contracted.py")
BUDGET_S = 4
"""Seconds that CrossHair may spend on one condition."""

FAULTS = {
    "leaves_headroom": (
        "rules",
        "pool_tokens - max_context_len - slack_tokens)",
        "pool_tokens - max_context_len)",
    ),
    "keep_pages": ("rules", "max(0, chain_pages - keys)", "chain_pages - keys"),
    "dropped": ("rules", "intersection(chain[keep:])", "intersection(chain[keep + 1 :])"),
    "retry_due": ("rules", "waited + 1 > interval", "waited > interval"),
    "served": ("rules", "elif hit < keys:", "elif hit + 1 < keys:"),
    "round_trip": ("model.layout", "% variable.size + variable.low", "% variable.size"),
    "decided": (
        "machine.compiled",
        "choice = choice.yes if truth & choice.bit else choice.no\n        return choice\n\n    def decide_lazy",
        "choice = choice.no if truth & choice.bit else choice.yes\n        return choice\n\n    def decide_lazy",
    ),
}
"""A fault in the code that a contract is about: module, what it says, what it says instead."""


def crosshair(*targets: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "crosshair", "check", "--analysis_kind=PEP316",
            f"--per_condition_timeout={BUDGET_S}", *targets,
        ],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(cwd), str(PACKAGE.parent)])},
        capture_output=True,
        text=True,
        timeout=300,
    )  # fmt: skip


@pytest.mark.slow
def test_no_contract_has_a_counterexample(tmp_path: Path) -> None:
    (tmp_path / "contracted.py").write_text(CONTRACTS.read_text())
    # The rules' own contracts on floats and generic sets are beyond z3: `contracted` has them on whole numbers.
    found = crosshair(
        "hicache_fsm.rules.keep_pages", "hicache_fsm.rules.retry_due", "contracted", cwd=tmp_path
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("function", FAULTS)
def test_a_planted_fault_is_found(function: str, tmp_path: Path) -> None:
    module, right, wrong = FAULTS[function]
    source = (PACKAGE / f"{module.replace('.', '/')}.py").read_text()
    assert source.count(right) == 1
    planted = source.replace(right, wrong)
    contracts = CONTRACTS.read_text().replace(f"hicache_fsm.{module} ", "planted ")
    where = "contracted" if re.search(rf"^def {function}\(", contracts, re.MULTILINE) else "planted"
    if where == "contracted":
        # A callee that breaks its own contract ends the path before the caller's is looked at.
        planted = re.sub(r"^ +(pre|post):.*\n", "", planted, flags=re.MULTILINE)
    (tmp_path / "planted.py").write_text(planted)
    (tmp_path / "contracted.py").write_text(contracts)
    found = crosshair(f"{where}.{function}", cwd=tmp_path)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "error:" in found.stdout
