"""Compiles generated C into a library, once for each text: libraries stay in the user's cache folder."""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Final

RUNTIME: Final = ("engine.h", "engine.c")
FLAGS: Final = ("-Og", "-w", "-shared", "-fPIC")
TUNED: Final = ("-march=native",)
LIMIT_S: Final = 300


def compiler() -> str | None:
    """The C compiler: what CC names, else cc, gcc or clang; None where there is none or no mmap."""
    if os.name != "posix":
        return None
    named = os.environ.get("CC")
    names = [named] if named else ["cc", "gcc", "clang"]
    return next((found for name in names if (found := shutil.which(name))), None)


def cached(text: str) -> Path | None:
    """The library of a text that was compiled before."""
    path = _path(text)
    return path if path.is_file() else None


def build(text: str) -> Path | None:
    """The library of a text, compiled if it must be; None if there is no compiler or it fails."""
    path = _path(text)
    if path.is_file():
        return path
    cc = compiler()
    if cc is None:
        return None
    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as name:
        folder = Path(name)
        for file in RUNTIME:
            (folder / file).write_text(_runtime(file), encoding="utf-8")
        (folder / "system.c").write_text(text, encoding="utf-8")
        for extra in (TUNED, ()):
            if _compiled([cc, *FLAGS, *extra, "system.c", "-o", "system.so"], folder):
                return _kept(folder / "system.so", path)
    return None


def _compiled(command: list[str], folder: Path) -> bool:
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT_S).returncode == 0
    return False


def _kept(library: Path, path: Path) -> Path | None:
    """Moved into the cache under a name of its own first, so that nobody loads a part of it."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        os.close(handle)
        shutil.copy(library, name)
        return Path(name).replace(path)
    return None


def _path(text: str) -> Path:
    """Named by all that decides what is in it, and by the machine, whose instructions it may use."""
    parts = [text, *map(_runtime, RUNTIME), *FLAGS, *TUNED, platform.node(), platform.machine()]
    digest = hashlib.sha256("\0".join([*parts, compiler() or ""]).encode()).hexdigest()
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "hicache-fsm" / f"{digest[:32]}.so"


def _runtime(file: str) -> str:
    return (files("hicache_fsm.explore") / file).read_text(encoding="utf-8")
