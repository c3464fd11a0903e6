"""What is known of each version by its number, held against the wheels that are laid out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from sglang_support import KNOWN_VERSIONS, VERSIONS

from hicache_fsm.sglang.assembly import Plugin
from hicache_fsm.sglang.harness.versions import ADAPTERS
from hicache_fsm.sglang.install import DEFAULT_ROOT, mend
from hicache_fsm.sglang.modes import Mode, Options
from hicache_fsm.sglang.releases import profile
from hicache_fsm.spec import load_spec, set_constant

pytestmark = pytest.mark.sglang


def wheel(version: str) -> Path:
    folder = DEFAULT_ROOT / version
    if not (folder / "sglang").exists():
        pytest.skip(f"{folder} is missing: run `{mend(version)}`")
    return folder


def hooked(version: str, mode: Mode) -> set[str]:
    """The full paths of what the plugin hooks in a version."""
    plugin = Plugin(Options(mode), version)
    return {*plugin.around(), *(target for target, _ in plugin.before())}


def methods(source: Path, name: str) -> Iterator[str]:
    """The methods of a class in a file, with those of the bases that are in the same file."""
    classes = {
        each.name: each for each in ast.parse(source.read_text()).body if isinstance(each, ast.ClassDef)
    }
    todo = [name]
    while todo:
        found = classes.get(todo.pop())
        for each in () if found is None else found.body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                yield each.name
        todo += [] if found is None else [base.id for base in found.bases if isinstance(base, ast.Name)]


def absent(folder: Path, targets: set[str]) -> list[str]:
    """The targets that a wheel does not have."""
    by_class: dict[str, list[str]] = {}
    for target in targets:
        owner, _, method = target.rpartition(".")
        by_class.setdefault(owner, []).append(method)
    missing = []
    for owner, wanted in by_class.items():
        module, _, name = owner.rpartition(".")
        source = folder.joinpath(*module.split(".")).with_suffix(".py")
        there = set(methods(source, name)) if source.exists() else set()
        missing += [f"{name}.{method}" for method in wanted if method not in there]
    return sorted(missing)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.STRICT])
@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_the_plugin_hooks_is_there(version: str, mode: Mode) -> None:
    assert absent(wheel(version), hooked(version, mode)) == []


def test_a_hook_on_what_a_version_has_not_is_seen() -> None:
    found = absent(wheel("0.5.23"), hooked("0.5.19", Mode.STRICT))
    assert "BufferModePipeline._launch_backup_intent" in found
    assert "Scheduler._retry_missed_storage_prefetches" in found


def test_every_known_version_has_an_adapter_and_a_profile_of_the_spec() -> None:
    assert tuple(ADAPTERS) == KNOWN_VERSIONS
    for version in KNOWN_VERSIONS:
        name, departures = profile(version)
        set_constant(load_spec(), name, **departures)


def test_a_span_too_short_to_be_asked_about_arms_a_retry_up_to_0_5_20_40042() -> None:
    arms = {}
    for version in KNOWN_VERSIONS:
        name, departures = profile(version)
        arms[version] = set_constant(load_spec(), name, **departures).profiles[name].constants.arms_too_short
    assert [version for version, armed in arms.items() if armed] == ["0.5.19", "0.5.20"]
