"""Memory and files keep pages the same way."""

from pathlib import Path
from threading import Thread

import pytest

from hicache_fsm.executor.stores import FileStore, MemoryStore, Store


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "pages")


def test_a_page_is_read_as_it_was_written(store: Store) -> None:
    store.write("kv", "../a page/名", b"12345678")
    page = bytearray(8)
    assert store.exists("kv", "../a page/名")
    assert store.read("kv", "../a page/名", memoryview(page))
    assert page == b"12345678"


def test_pools_are_apart(store: Store) -> None:
    store.write("kv", "a", b"1234")
    assert not store.exists("swa", "a")
    assert not store.read("swa", "a", memoryview(bytearray(4)))


@pytest.mark.parametrize("length", [3, 5])
def test_a_page_of_another_length_is_not_read(store: Store, length: int) -> None:
    store.write("kv", "a", b"1234")
    page = bytearray(length)
    assert not store.read("kv", "a", memoryview(page))
    assert page == bytes(length)


def test_a_page_is_overwritten_whole(store: Store) -> None:
    store.write("kv", "a", b"1234")
    store.write("kv", "a", b"56")
    page = bytearray(2)
    assert store.read("kv", "a", memoryview(page))
    assert page == b"56"


def test_pages_may_be_written_from_many_threads(store: Store) -> None:
    def write(part: int) -> None:
        for number in range(50):
            store.write("kv", f"{number}", bytes([part]) * 64)

    threads = [Thread(target=write, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    page = bytearray(64)
    assert all(
        store.read("kv", f"{number}", memoryview(page)) and len(set(page)) == 1 for number in range(50)
    )


def test_a_write_that_fails_leaves_the_old_page_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    store.write("kv", "a", b"1234")

    def full(path: Path, data: bytes) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        store.write("kv", "a", b"5678")
    page = bytearray(4)
    assert store.read("kv", "a", memoryview(page))
    assert page == b"1234"
    assert len(list(tmp_path.iterdir())) == 1
