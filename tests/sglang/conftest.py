"""Runs of the real SGLang, each made once a session and shared by the tests that read it."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sglang_support import Driven, Played

from hicache_fsm.sglang.install import DEFAULT_ROOT, env_python
from hicache_fsm.sglang.record import HarnessMissingError, child_environment, record, require
from hicache_fsm.suite.language import parse
from hicache_fsm.suite.protocol import Event, World
from hicache_fsm.suite.targets.sglang import SglangTarget, make


@pytest.fixture(scope="session")
def play(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Played]:
    """``play(version, *arguments, recorded=True)``; equal calls share one run."""

    @functools.cache
    def played(version: str, *arguments: str, recorded: bool = True) -> Played:
        try:
            require(version)
        except HarnessMissingError as missing:
            pytest.skip(str(missing))
        folder = tmp_path_factory.mktemp("played")
        log = folder / "log.jsonl" if recorded else None
        printed = record(version, log, arguments=arguments, outputs=folder / "outputs.json")
        return Played(printed, json.loads((folder / "outputs.json").read_text()), log)

    return played


@pytest.fixture(scope="session")
def plugged(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """``plugged(version, mode, *arguments, allow="")`` plays with the plugin; its report. Equal calls share a run."""

    @functools.cache
    def played(version: str, mode: str, *arguments: str, allow: str = "") -> dict[str, Any]:
        try:
            require(version)
        except HarnessMissingError as missing:
            pytest.skip(str(missing))
        report = tmp_path_factory.mktemp("plugged") / "report.json"
        plugin = {"HICACHE_FSM_MODE": mode, "HICACHE_FSM_ALLOW": allow, "HICACHE_FSM_AUDIT_PASSES": "100"}
        record(version, None, arguments=arguments, plugin=plugin, report=report)
        told: dict[str, Any] = json.loads(report.read_text())
        return told

    return played


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """``planted(version)``: what `planted_leaks.py` saw, by plant; an engine that starts ``strict`` plays one.

    ``every`` is how many passes a judgement may be late.
    """

    @functools.cache
    def run(version: str, mode: str = "observe", *only: str, every: int = 1) -> dict[str, Any]:
        try:
            require(version)
        except HarnessMissingError as missing:
            pytest.skip(str(missing))
        plugin = {"HICACHE_FSM_MODE": mode, "HICACHE_FSM_EVERY": str(every)}
        environment = child_environment(version, tmp_path_factory.mktemp("planted"), plugin=plugin)
        script = Path(__file__).with_name("planted_leaks.py")
        command = [str(env_python(DEFAULT_ROOT)), str(script), version, *only]
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert results, done.stderr[-3000:]
        told: dict[str, Any] = json.loads(results[0].removeprefix("RESULT "))
        return told

    return run


@pytest.fixture(scope="session")
def targets() -> Iterator[Callable[..., SglangTarget]]:
    """``targets(version, **options)``: the gated targets of this session, which share their engines."""
    made: dict[str, SglangTarget] = {}

    def target(version: str, **options: bool) -> SglangTarget:
        try:
            require(version)
        except HarnessMissingError as missing:
            pytest.skip(str(missing))
        first = made.setdefault(version, make(version))
        alike = make(version, **options)
        alike._children = first._children
        return alike

    yield target
    for one in made.values():
        one.stop()


@pytest.fixture
def drive(targets: Callable[..., SglangTarget]) -> Callable[..., Driven]:
    """``drive(version, world, lines, **options)``; an event that is no word of the language may be an ``Event``."""

    def driven(version: str, world: World, lines: Sequence[str | Event], **options: bool) -> Driven:
        cache = targets(version, **options).build(world)
        try:
            seen = Driven([], [])
            for line in lines:
                event = parse(line.removeprefix("!")) if isinstance(line, str) else line
                seen.replies.append(cache.drive(event))
                seen.observed.append(cache.observe())
            return seen
        finally:
            cache.close()

    return driven
