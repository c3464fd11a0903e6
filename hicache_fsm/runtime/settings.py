"""What a lifecycle is built with: the profile's constants and the sizes of the pools."""

import logging
import math
from dataclasses import dataclass
from typing import Literal

from hicache_fsm.rules import anchor_cap
from hicache_fsm.spec import Constants

LOGGER = logging.getLogger("hicache_fsm.runtime")

HostMode = Literal["buffer_only", "cache"]
OnIllegal = Literal["observe", "enforce", "strict"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Tokens throughout, except `page_size`, which is tokens a page; `host_tokens` None means uncounted."""

    profile: str
    constants: Constants
    mode: HostMode
    on_illegal: OnIllegal
    page_size: int
    pool_tokens: int
    pin_cap: int
    host_tokens: int | None

    @property
    def host_pages(self) -> int | None:
        """Whole pages that the host pool holds, None if uncounted."""
        return None if self.host_tokens is None else self.host_tokens // self.page_size

    def pages(self, tokens: int) -> int:
        """Pages that so many tokens need."""
        return -(-tokens // self.page_size)


def pin_cap(
    constants: Constants, pool_tokens: int, page_size: int, max_context_len: int | None, allow_unknown: bool
) -> int:
    """The cap on pinned tokens (#36227, #37464).

    With `allow_unknown` an unknown context length (None or 0) counts no headroom, as upstream does, and says
    so. Raises ValueError for an unknown length otherwise, since such a cap can wedge admission for ever.
    """
    if max_context_len or not allow_unknown:
        slack = constants.headroom_slack * page_size
        return anchor_cap(constants.pin_fraction, pool_tokens, max_context_len, slack)
    cap = math.floor(constants.pin_fraction * pool_tokens)
    LOGGER.warning(
        "context length unknown: pins may hold %d of %d tokens, with no headroom for admission",
        cap,
        pool_tokens,
    )
    return cap
