"""The plan of storage faults, and the command line in front of a run."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from hicache_fsm.cli.app import app
from hicache_fsm.sglang.settings import FAULTS, FaultPlan, survivable_faults


def test_a_share_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"share of faulty storage calls is 1\.5; it goes from 0 to 1"):
        FaultPlan(share=1.5)


@pytest.mark.parametrize("kinds", [("late", "lost"), ()])
def test_unknown_faults_are_refused_with_those_there_are(kinds: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="there are late, short, wrong, error, silent"):
        FaultPlan(kinds=kinds)


def test_a_call_that_raises_is_left_out_where_it_would_end_its_thread() -> None:
    for version in ("0.5.19", "0.5.20", "0.5.21"):
        assert "error" not in survivable_faults(version)
    assert survivable_faults("0.5.22") == FAULTS
    assert survivable_faults("0.5.23") == FAULTS


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        (["--sglang", "0.5.23"], "--out LOG, --mode"),
        (["--sglang", "0.4.0", "--mode", "strict"], "unknown SGLang version 0.4.0"),
    ],
)
def test_a_record_that_makes_no_sense_is_one_line_and_exit_2(arguments: list[str], mend: str) -> None:
    result = CliRunner().invoke(app, ["record", *arguments])
    assert result.exit_code == 2
    assert mend in result.output
    assert len(result.output.strip().splitlines()) == 1
