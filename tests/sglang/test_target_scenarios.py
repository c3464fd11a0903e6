"""What the scenarios come to on the installed versions, compared with the outcomes listed beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_support import VERSIONS

from hicache_fsm.sglang.install import VERSIONS as KNOWN_VERSIONS
from hicache_fsm.suite.expected import FILE, load_expected, surprises
from hicache_fsm.suite.runner import run
from hicache_fsm.suite.scenario import collect, load, shipped
from hicache_fsm.suite.targets.sglang import SglangTarget

pytestmark = pytest.mark.sglang
LISTED = shipped() / FILE


def compared(target: SglangTarget, paths: list[Path]) -> list[str]:
    """The scenarios of these files that came out otherwise than listed, on a target."""
    runs = [run(target, load(path)) for path in paths]
    return surprises(load_expected(LISTED), f"sglang/{target.version}", runs)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_lead_comes_to_what_is_listed(targets: Callable[..., SglangTarget], version: str) -> None:
    assert compared(targets(version, in_order=True), sorted(shipped().glob("lead-*.toml"))) == []


@pytest.mark.soak
@pytest.mark.parametrize("version", VERSIONS)
def test_each_scenario_comes_to_what_is_listed(targets: Callable[..., SglangTarget], version: str) -> None:
    assert compared(targets(version), collect([shipped()])) == []


def test_every_lead_is_listed_for_each_version() -> None:
    listed = load_expected(LISTED)
    leads = {path.stem for path in shipped().glob("lead-*.toml")}
    assert {name for name in leads if len(listed.get(name, {})) < len(KNOWN_VERSIONS)} == set()
