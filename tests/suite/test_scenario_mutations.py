"""A scenario that passes can fail: under a change of the spec it fails where it should."""

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from hicache_fsm.spec import Spec, load_spec
from hicache_fsm.spec.mutate import apply_witness
from hicache_fsm.spec.types import Witness
from hicache_fsm.suite.expected import FILE, load_expected
from hicache_fsm.suite.runner import run
from hicache_fsm.suite.scenario import load, shipped
from hicache_fsm.suite.targets.runtime import RuntimeTarget

MUTATIONS = tomllib.loads((shipped() / "mutations.toml").read_text(encoding="utf-8"))["mutations"]

TARGETS_OWN = {"a-node-is-not-evicted-while-it-is-loaded"}
"""No row to take away: a loading node is not on the device, so that there is nothing to evict."""


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec()


def witness(change: Mapping[str, Any]) -> Witness:
    """The change as the spec's own witnesses spell it."""
    if "set" in change:
        return Witness("set", change["set"], value=change["to"])
    action = "swap" if "swap" in change else "drop"
    named = {key: change.get(key, "") for key in ("machine", "event", "name", "source", "dest")}
    return Witness(action, change[action], value=change.get("with", ""), **named)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[f"{each['scenario']}" for each in MUTATIONS])
def test_the_scenario_fails_under_its_mutation(mutation: Mapping[str, Any], spec: Spec) -> None:
    story = load(shipped() / f"{mutation['scenario']}.toml")
    mutated = RuntimeTarget(spec=apply_witness(spec, witness(mutation["change"])))
    assert str(run(mutated, story).verdict) == mutation["then"]


def test_every_scenario_can_fail() -> None:
    """Under a mutation, or under upstream's rules; `lead-` and `found-` ones fail on a real engine, or say why not."""
    mutated = {each["scenario"] for each in MUTATIONS}
    listed = load_expected(shipped() / FILE)
    failing = {
        name for name, each in listed.items() if any(outcome.startswith("fail") for outcome in each.values())
    }
    told = {name for name in listed if not name.startswith(("lead-", "found-"))}
    assert told - mutated - failing == TARGETS_OWN
