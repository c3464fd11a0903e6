"""Memory of the host pool: mapped once, and faulted in exactly once, before anybody uses it (#36705)."""

import ctypes
import errno
import mmap
import sys
from typing import Final

from hicache_fsm.executor.errors import HostMemoryError

MADV_POPULATE_WRITE: Final = 23
"""Linux 5.14 and later; not among the constants of Python's `mmap` module."""

PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS if sys.platform == "linux" else 0


def map_populated(size: int) -> mmap.mmap:
    """An anonymous mapping of `size` bytes whose every page is in memory and writable.

    By advice where the kernel has it, by the flag of mmap elsewhere, never by both. Raises HostMemoryError if
    the kernel refuses the memory: nothing is left to be faulted in later.
    """
    size = max(size, 1)
    mapped = _map(size, PRIVATE)
    try:
        mapped.madvise(MADV_POPULATE_WRITE)
    except OSError as refusal:
        mapped.close()
        if refusal.errno == errno.EINVAL:
            return _populated_by_flag(size)
        raise _refused(size, refusal) from refusal
    return mapped


def resident_bytes(mapped: mmap.mmap) -> int:
    """How many bytes of the mapping are in memory, in whole pages (mincore)."""
    pages = -(-len(mapped) // mmap.PAGESIZE)
    flags = (ctypes.c_ubyte * pages)()
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(mapped)), flags):
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(flag & 1 for flag in flags) * mmap.PAGESIZE


def _map(size: int, flags: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, flags=flags)
    except OSError as refusal:
        raise _refused(size, refusal) from refusal


def _populated_by_flag(size: int) -> mmap.mmap:
    mapped = _map(size, PRIVATE | mmap.MAP_POPULATE)
    # The flag fails without a word, so that it has to be looked up.
    if resident_bytes(mapped) < size:
        mapped.close()
        raise _refused(size, OSError(errno.ENOMEM, "not every page was populated"))
    return mapped


def _refused(size: int, refusal: OSError) -> HostMemoryError:
    return HostMemoryError(
        f"the host pool needs {size} bytes of memory now: {refusal.strerror or refusal}; make it smaller"
    )
