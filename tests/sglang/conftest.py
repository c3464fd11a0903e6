"""Runs of the real SGLang, each made once a session and shared by the tests that read it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

import pytest
from sglang_support import Played

from hicache_fsm.sglang.record import HarnessMissingError, record, require


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
