"""An executor on real pools: torch tensors on any device, host pages, storage, and threads that do the I/O."""

from hicache_fsm.executor.core import Sizes
from hicache_fsm.executor.tree import TreeSide
from hicache_fsm.runtime import HiCacheLifecycle

__all__ = ["Sizes", "TorchPools"]


class TorchPools(TreeSide):
    """Implements `hicache_fsm.runtime.Executor`.

    Give it to a lifecycle as `executor` and tell it the lifecycle by `connect`. Once a pass call `drain`,
    then `begin_pass`. What a scheduler does besides: `seat` before `admit`, `unseat` after `finish`, `retract`
    or a failed `admit`, `plant` to make pages of a seat a node. See docs/embedding.md.
    """

    def disagreements(self, life: HiCacheLifecycle) -> list[str]:
        """Where the books of the pools and those of a lifecycle differ, and what is wrong with either."""
        found = [*self.audit(), *map(str, life.check())]
        for what, here, there in (
            ("host tokens", self.fetch_pages * self.sizes.page_size, life.occupied_tokens),
            ("tokens pinned", self.locked_tokens, life.pinned_tokens),
        ):
            if here != there:
                found.append(f"{what}: the pools have {here}, the lifecycle counts {there}")
        return found
