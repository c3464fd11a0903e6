"""The arithmetic behind the guards, as pure functions of numbers: no pools, no clocks, no state.

The `pre:` and `post:` lines are PEP 316 contracts, which CrossHair checks: inside `pre:` nothing raises.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

H = TypeVar("H")


def anchor_cap(fraction: float, pool_tokens: int, max_context_len: int | None, slack_tokens: int = 0) -> int:
    """How many tokens anchors may pin at once (#36227), leaving room for one largest request.

    `fraction` is a share of the pool, 0 to 1; everything else counts tokens.  `slack_tokens` stay free beyond
    the context length, as admission may need up to a page more than it (#37464).  A pool without headroom
    allows no pins.

    Raises ValueError if the context length is unknown (None, or upstream's 0), since a cap without headroom
    can wedge admission for ever, and for a negative or non-finite number.

    pre: 0 <= fraction <= 1 and 0 <= pool_tokens < 2**53 and max_context_len and max_context_len > 0
    pre: slack_tokens >= 0
    post: 0 <= _ <= pool_tokens
    post: _ == 0 or _ + max_context_len + slack_tokens <= pool_tokens
    """
    if max_context_len is None or max_context_len == 0:
        raise ValueError(
            "the context length is unknown, so the pin cap can leave no headroom: give max_context_len"
        )
    if not math.isfinite(fraction) or min(fraction, pool_tokens, max_context_len, slack_tokens) < 0:
        raise ValueError(
            f"a pin cap needs finite numbers from 0 up: fraction {fraction}, pool_tokens {pool_tokens}, "
            f"max_context_len {max_context_len}, slack_tokens {slack_tokens}"
        )
    return max(0, min(math.floor(fraction * pool_tokens), pool_tokens - max_context_len - slack_tokens))


def keep_pages(completed_pages: int, chain_pages: int, transfers: Sequence[tuple[int | None, int]]) -> int:
    """How many leading pages of a hash chain every pool served, when a hybrid prefetch is discarded (#36386).

    All numbers are pages.  `completed_pages` is what the KV pool read, `chain_pages` the length of the chain;
    each auxiliary transfer is (its number of keys or None, the pages that hit).  Its keys are the chain's
    trailing pages, so a short transfer proves nothing from its first key on; a transfer without keys proves
    nothing at all.

    Raises ValueError for a negative number.

    pre: min(completed_pages, chain_pages) >= 0
    pre: all(hit >= 0 and (keys is None or keys >= 0) for keys, hit in transfers)
    post: 0 <= _ <= completed_pages
    """
    if completed_pages < 0 or chain_pages < 0:
        raise ValueError(f"pages are counted from 0 up: completed {completed_pages}, chain {chain_pages}")
    keep = completed_pages
    for keys, hit in transfers:
        if hit < 0 or (keys is not None and keys < 0):
            raise ValueError(f"pages are counted from 0 up: a transfer of {keys} keys hit {hit}")
        if keys is None:
            keep = 0
        elif hit < keys:
            keep = min(keep, max(0, chain_pages - keys))
    return keep


def invalidate_beyond(believed: AbstractSet[H], chain: Sequence[H], keep: int) -> frozenset[H]:
    """The beliefs to drop once only the first `keep` pages of `chain` were served (#36386).

    A page that also occurs among the kept ones is dropped all the same: a belief too few costs one write, a
    belief too many costs every later fetch.

    Raises ValueError if `keep` is negative, which Python would count from the chain's end.

    pre: keep >= 0
    post: _ == {page for page in believed if page in chain[keep:]}
    """
    if keep < 0:
        raise ValueError(f"pages are counted from 0 up: keep {keep}")
    return frozenset(believed).intersection(chain[keep:])


def retry_due(waited: int, interval: int) -> bool:
    """Whether this sweep, the one after `waited` others, re-issues a paced question (#36227).

    Both numbers are scheduling passes.  `waited` counts the sweeps since the marker was raised, without this
    one; the sweep that consumes the marker is the first.  0.5.23 computes the same pass as first sweep +
    interval.  An interval of 0 turns retries off: nothing is ever due.

    Raises ValueError for a negative number.

    pre: min(waited, interval) >= 0
    post: _ == (interval > 0 and waited >= interval)
    """
    if waited < 0 or interval < 0:
        raise ValueError(f"passes are counted from 0 up: waited {waited}, interval {interval}")
    return interval > 0 and waited + 1 > interval
