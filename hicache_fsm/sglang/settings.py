"""What one run of the harness is made of. Standard library only, so that any environment can say it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

from .install import check_known
from .releases import survives_errors

Mode = Literal["buffer_only", "cache"]
Storage = Literal["sim", "file"]
Policy = Literal["wait_complete", "best_effort", "timeout"]
Layout = Literal["dense", "swa", "mamba"]


@dataclass(frozen=True, slots=True)
class IoLatency:
    """How many scheduling passes a storage call is held before it answers; 0 answers within the pass.

    One I/O thread serves one call at a time, so a latency also bounds throughput.
    """

    exists: int = 2
    read: int = 3
    write: int = 4


FAULTS = ("late", "short", "wrong", "error", "silent")
"""How a storage call may go wrong."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How often storage misbehaves, and how.

    ``late``: the answer takes ``late_passes`` more. ``short``: some trailing pages are missing, or a write is
    refused. ``wrong``: a question is told that all is stored, a read delivers nothing, a write reports what it
    did not store. ``error``: the call raises. ``silent``: no answer for ``silent_passes``, then none at all.
    """

    share: float = 0.2
    """Share of the calls that go wrong."""
    kinds: tuple[str, ...] = FAULTS
    late_passes: tuple[int, int] = (5, 30)
    silent_passes: tuple[int, int] = (60, 120)
    silent_share: float = 0.1
    """Share of the faults drawn as silent that are: each stops a thread for long."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share of faulty storage calls is {self.share}; it goes from 0 to 1")
        unknown = sorted(set(self.kinds) - set(FAULTS))
        if unknown or not self.kinds:
            raise ValueError(
                f"unknown storage fault {', '.join(unknown) or 'none'}; there are {', '.join(FAULTS)}"
            )


def survivable_faults(version: str) -> tuple[str, ...]:
    """The faults that an engine of ``version`` lives through: before 0.5.22 a call that raises ends its thread."""
    return tuple(fault for fault in FAULTS if fault != "error" or survives_errors(version))


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine. Sizes are tokens, periods are scheduling passes."""

    version: str = "0.5.23"
    mode: Mode = "buffer_only"
    storage: Storage = "sim"
    page_size: int = 1
    policy: Policy = "wait_complete"
    seed: int = 0
    cache: bool = True
    """False: no radix cache and no HiCache at all, the reference for outputs."""
    pool_tokens: int = 1024
    host_ratio: float = 2.0
    """Host pool size as a multiple of ``pool_tokens``."""
    context_tokens: int = 512
    chunk_tokens: int = 512
    """Prefill chunk. A prompt cut in chunks can kill an engine whose pool is all locked by write-backs."""
    max_running: int = 4
    max_queued: int | None = None
    prefetch_threshold: int = 16
    retry_interval: int = 3
    """Passes between a miss and its re-issue; 0 switches retries off."""
    retry_attempts: int = 2
    retract_interval: int = 0
    """Force a decode retraction every so many decode steps; 0 never."""
    layout: Layout = "dense"
    """``swa``: the model's first layer sees a window, and its tokens live in a pool of their own; ``mamba``: it
    keeps a state, which lives in a pool of states."""
    window_tokens: int = 32
    window_share: float = 0.5
    """Size of the window pool as a share of ``pool_tokens``."""
    states: int = 24
    """Size of the pool of states, one for each running request and each node that has one."""
    heads: int = 2
    """Attention heads of the model: at least one a rank of tensor parallelism."""
    latency: IoLatency | None = IoLatency()
    """None: storage answers in its own time, which makes the run depend on the machine."""

    def __post_init__(self) -> None:
        check_known(self.version)
        if self.window_tokens < 1 or not 0 < self.window_share <= 1 or self.states < 1:
            raise ValueError(
                f"a window of {self.window_tokens} tokens in {self.window_share} of the pool and {self.states} states:"
                " at least one token, a share from 0 to 1, at least one state"
            )
        if self.page_size < 1 or self.context_tokens % self.page_size:
            raise ValueError(
                f"page size {self.page_size} does not divide the context of {self.context_tokens} tokens"
            )

    def to_json(self) -> str:
        """One line that ``from_json`` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``. Raises ``ValueError`` or ``TypeError`` on anything else."""
        fields: dict[str, Any] = json.loads(text)
        latency = fields.pop("latency", None)
        made = cls(**fields, latency=None)
        return replace(made, latency=IoLatency(**latency)) if latency else made
