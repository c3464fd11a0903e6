"""Fixtures for tests that run TLC."""

from pathlib import Path

import pytest
from tlc_support import COUNTER

from hicache_fsm.spec import Spec, load_spec
from hicache_fsm.tlc import TlcError, Tools, locate


@pytest.fixture(scope="session")
def spec() -> Spec:
    """The shipped spec."""
    return load_spec()


@pytest.fixture(scope="session")
def tools() -> Tools:
    """The packaged Java and jar."""
    try:
        return locate()
    except TlcError as error:
        pytest.skip(str(error))


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A folder with one small module."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "Counter.tla").write_text(COUNTER)
    return folder
