"""How the supported SGLang versions differ, as far as driving a scheduler goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class VersionAdapter:
    """One SGLang release. ``build`` publishes the configuration and makes the scheduler."""

    version: str
    paged_kernels_missing: bool
    """The paged allocator launches device kernels and has no torch path."""
    ranks_published: bool
    """The scheduler reads its ranks from the published configuration; earlier it is handed each of them."""

    def preload(self) -> None:
        """Load the page-hash extension now: built lazily it stalls the first query for seconds."""
        from sglang.srt.mem_cache.cpp_utils import native_hash

        native_hash._load_native_hash_module()

    def build(self, server_args: Any, port_args: Any, rank: int = 0) -> Any:
        """A ``Scheduler``, of one rank of tensor parallelism. Raises whatever SGLang raises."""
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.runtime_context import publish

        if not self.ranks_published:
            publish(server_args, role="scheduler")
            return Scheduler(server_args, port_args, rank, rank, 0, 0, 0, 0, None)
        from sglang.srt.runtime_context import SpawnRanks

        publish(server_args, role="scheduler", ranks=SpawnRanks(world_rank=rank, dp_rank=None, gpu_id=rank))
        return Scheduler(server_args, port_args)


ADAPTERS = {
    "0.5.19": VersionAdapter("0.5.19", paged_kernels_missing=True, ranks_published=False),
    "0.5.20": VersionAdapter("0.5.20", paged_kernels_missing=True, ranks_published=False),
    "0.5.21": VersionAdapter("0.5.21", paged_kernels_missing=True, ranks_published=True),
    "0.5.22": VersionAdapter("0.5.22", paged_kernels_missing=False, ranks_published=True),
    "0.5.23": VersionAdapter("0.5.23", paged_kernels_missing=False, ranks_published=True),
}


def adapter(version: str) -> VersionAdapter:
    """The adapter of an installed version; raises ``KeyError`` for an unknown one."""
    return ADAPTERS[version]
