"""Sets of states as sorted arrays of keys."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hicache_fsm.model.layout import Words


def distinct(parts: Sequence[Words]) -> Words:
    """The distinct keys of all parts, sorted."""
    keys = np.sort(np.concatenate(parts)) if parts else np.empty(0, np.uint64)
    if keys.size < 2:
        return keys
    keep = np.empty(keys.size, np.bool_)
    keep[0] = True
    np.not_equal(keys[1:], keys[:-1], out=keep[1:])
    return keys[keep]


def contained(keys: Words, among: Words) -> npt.NDArray[np.bool_]:
    """Which keys are in `among`, which is sorted."""
    if not among.size:
        return np.zeros(keys.size, np.bool_)
    place = np.searchsorted(among, keys)
    place[place == among.size] = 0
    return np.asarray(among[place] == keys)


def merge(one: Words, other: Words) -> Words:
    """The sorted keys of two sorted sets without a common key."""
    return np.sort(np.concatenate((one, other)))
