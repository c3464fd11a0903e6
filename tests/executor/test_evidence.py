"""What a question or a read finds missing is believed stored no more, so that the next insert writes it."""

from collections.abc import Iterator

import pytest
from executor_support import HYBRID, World, rows, world

from hicache_fsm.executor.stores import MemoryStore

NAMES = ("p0", "p1", "p2")


class Losing(MemoryStore):
    """Has lost a page: `forgotten` is gone altogether, `torn` can no longer be read, `refused` raises."""

    def __init__(self) -> None:
        super().__init__()
        self.how = ""

    def exists(self, pool: str, name: str) -> bool:
        if self.how == "refused" and name == "p1":
            raise OSError("storage error")
        return not (self.how == "forgotten" and name == "p1") and super().exists(pool, name)

    def read(self, pool: str, name: str, into: memoryview) -> bool:
        if self.how == "refused while read" and name == "p1":
            raise OSError("storage error")
        return not (self.how == "torn" and name == "p1") and super().read(pool, name, into)


@pytest.fixture(params=["dense", "hybrid"])
def made(request: pytest.FixtureRequest) -> Iterator[World]:
    """Three pages on the device, written and believed stored."""
    sizes = {} if request.param == "dense" else {"sizes": HYBRID}
    with world(store=Losing(), **sizes) as made:
        made.plant("node", rows(3), *NAMES)
        made.write(*NAMES)
        yield made
        made.step()
        made.life.evict("node")
        assert made.pools.empty


def fetch(made: World) -> None:
    """A request asks for the pages, gets what it gets, and goes."""
    key = made.enqueue("r", *NAMES)
    made.life.issue(key)
    made.step()
    made.step()
    made.life.abort(key)


def believed(made: World) -> list[str]:
    return [name for name in NAMES if made.life.beliefs.state("kv", name) == "believed"]


@pytest.mark.parametrize("how", ["forgotten", "torn"])
def test_a_page_that_storage_lost_is_written_again_by_the_next_insert_36386(made: World, how: str) -> None:
    made.store.how = how
    fetch(made)
    assert believed(made) == ["p0", "p2"]
    made.store.how = ""
    for part in made.pools.parts:
        assert made.life.write(part, NAMES) == ["p1"]
    made.step()
    made.life.begin_pass()
    assert believed(made) == list(NAMES)


@pytest.mark.parametrize("how", ["refused", "refused while read", ""])
def test_neither_an_error_nor_a_success_of_storage_is_evidence_against_a_page(made: World, how: str) -> None:
    made.store.how = how
    fetch(made)
    assert believed(made) == list(NAMES)


def test_a_write_whose_copy_from_the_device_failed_is_offered_again(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.plant("other", rows(1), "q0")
    with monkeypatch.context() as planted:
        planted.setattr(made.pools.host, "from_device", broken)
        made.life.write(made.pools.parts[0], ["q0"])
        made.step()
    assert made.pools.host.free_pages == made.pools.sizes.host_pages
    assert made.life.write(made.pools.parts[0], ["q0"]) == ["q0"]
    made.step()
    made.life.begin_pass()
    made.life.evict("other")


def broken(*_: object) -> None:
    raise RuntimeError("the copy failed")


def test_a_read_that_was_stopped_is_no_evidence_either(made: World) -> None:
    made.pools.storage.pause()
    key = made.enqueue("r", *NAMES)
    made.life.issue(key)
    made.life.abort(key)
    made.pools.storage.resume()
    made.step()
    assert believed(made) == list(NAMES)
