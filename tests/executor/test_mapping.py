"""The host pool's memory is faulted in once, when it is mapped, or refused in one line (#36705, #31424)."""

import errno
import mmap
import subprocess
import sys
from resource import RUSAGE_SELF, getrusage

import pytest

from hicache_fsm.executor import mapping
from hicache_fsm.executor.errors import HostMemoryError
from hicache_fsm.executor.mapping import map_populated, resident_bytes

SIZE = 64 * 1024 * 1024
PAGES = SIZE // mmap.PAGESIZE


def faults() -> int:
    return getrusage(RUSAGE_SELF).ru_minflt


def touch(mapped: mmap.mmap) -> int:
    """Write to every page; how many faults that took."""
    before = faults()
    for start in range(0, SIZE, mmap.PAGESIZE):
        mapped[start] = 1
    return faults() - before


class Counted:
    """Stands in for the `mmap` module: notes flags and advice; the kernel's answer may be an error number."""

    def __init__(self, answer: int = 0) -> None:
        self.flags: list[int] = []
        self.advice: list[int] = []
        self.answer = answer

    def __getattr__(self, name: str) -> object:
        return getattr(mmap, name)

    def mmap(self, fileno: int, length: int, flags: int) -> mmap.mmap:
        self.flags.append(flags)
        counted = self

        class Mapped(mmap.mmap):
            def madvise(self, option: int, *_: int) -> None:
                counted.advice.append(option)
                if counted.answer:
                    raise OSError(counted.answer, "planted")
                super().madvise(option)

        return Mapped(fileno, length, flags=flags)


def test_every_page_is_in_memory_before_the_first_use() -> None:
    mapped = map_populated(SIZE)
    assert resident_bytes(mapped) == SIZE
    assert touch(mapped) < PAGES // 100


def test_each_page_faults_once_between_the_mapping_and_its_first_use_36705() -> None:
    before = faults()
    touch(map_populated(SIZE))
    assert 0 < faults() - before <= PAGES * 1.01


def test_a_mapping_that_is_not_populated_faults_on_first_use() -> None:
    lazy = mmap.mmap(-1, SIZE, flags=mapping.PRIVATE)
    lazy.madvise(mmap.MADV_NOHUGEPAGE)
    assert resident_bytes(lazy) == 0
    assert touch(lazy) >= PAGES


def test_where_the_kernel_has_the_advice_the_flag_is_not_set_36705(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    monkeypatch.setattr(mapping, "mmap", counted)
    mapped = map_populated(SIZE)
    assert counted.advice == [mapping.MADV_POPULATE_WRITE]
    assert [flags & mmap.MAP_POPULATE for flags in counted.flags] == [0]
    assert resident_bytes(mapped) == SIZE


def test_elsewhere_the_flag_does_it_and_the_first_mapping_was_never_touched_36705(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = Counted(errno.EINVAL)
    monkeypatch.setattr(mapping, "mmap", counted)
    mapped = map_populated(SIZE)
    assert [bool(flags & mmap.MAP_POPULATE) for flags in counted.flags] == [False, True]
    assert touch(mapped) < PAGES // 100


@pytest.mark.parametrize("answer", [errno.ENOMEM, errno.EFAULT])
def test_a_refusal_is_one_clear_error_and_no_lazy_mapping_36705(
    answer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(answer)
    monkeypatch.setattr(mapping, "mmap", counted)
    with pytest.raises(HostMemoryError, match=f"the host pool needs {SIZE} bytes of memory now"):
        map_populated(SIZE)
    assert len(counted.flags) == 1


def test_a_flag_that_populated_nothing_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "mmap", Counted(errno.EINVAL))
    monkeypatch.setattr(mapping, "resident_bytes", lambda mapped: 0)
    with pytest.raises(HostMemoryError, match="not every page was populated"):
        map_populated(SIZE)


def test_the_kernels_own_refusal_surfaces() -> None:
    program = (
        "import resource\n"
        "from hicache_fsm.executor.errors import HostMemoryError\n"
        "from hicache_fsm.executor.mapping import map_populated\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try:\n    map_populated(1 << 34)\n"
        "except HostMemoryError as refusal:\n    print(refusal)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.startswith(
        f"the host pool needs {1 << 34} bytes of memory now: Cannot allocate memory"
    )
