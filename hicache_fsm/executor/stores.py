"""Storage behind the pools: pages by name, in memory or in files."""

import hashlib
import os
from pathlib import Path
from threading import Lock
from typing import Protocol


class Store(Protocol):
    """What I/O threads call, several at a time.  Any exception is taken for a storage error."""

    def exists(self, pool: str, name: str) -> bool:
        """Whether the page is stored."""

    def read(self, pool: str, name: str, into: memoryview) -> bool:
        """Fill `into` with the page's bytes.  False if it is absent or has another length."""

    def write(self, pool: str, name: str, data: bytes) -> None:
        """Store the page, all of it or nothing."""


class MemoryStore:
    """Pages in a dictionary."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, str], bytes] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._pages)

    def exists(self, pool: str, name: str) -> bool:
        with self._lock:
            return (pool, name) in self._pages

    def read(self, pool: str, name: str, into: memoryview) -> bool:
        with self._lock:
            data = self._pages.get((pool, name))
        if data is None or len(data) != len(into):
            return False
        into[:] = data
        return True

    def write(self, pool: str, name: str, data: bytes) -> None:
        with self._lock:
            self._pages[pool, name] = bytes(data)


class FileStore:
    """One file a page, in a folder that is made if it is not there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = Lock()
        self._written = 0

    def exists(self, pool: str, name: str) -> bool:
        return self._path(pool, name).exists()

    def read(self, pool: str, name: str, into: memoryview) -> bool:
        try:
            with self._path(pool, name).open("rb", buffering=0) as file:
                return os.fstat(file.fileno()).st_size == len(into) and file.readinto(into) == len(into)
        except FileNotFoundError:
            return False

    def write(self, pool: str, name: str, data: bytes) -> None:
        with self._lock:
            self._written += 1
            number = self._written
        draft = self._folder / f"{os.getpid()}-{number}.draft"
        try:
            draft.write_bytes(data)
            draft.replace(self._path(pool, name))
        finally:
            draft.unlink(missing_ok=True)

    def _path(self, pool: str, name: str) -> Path:
        # A name may be anything, a file name may not.
        return self._folder / f"{pool}-{hashlib.sha256(name.encode()).hexdigest()}.page"
