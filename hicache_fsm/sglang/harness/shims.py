"""What a CPU lacks and SGLang's host pools need: torch copies in place of device kernels.

Nothing here decides anything: pools, tree, controller and scheduler stay the installed ones.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from .versions import VersionAdapter


def copy_all_layers_to_pages(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Device rows (token, ...) of every layer into host pages (page, layer, slot, ...)."""
    layers = len(src_ptrs) // len(dst_ptrs)
    pages, slots = dst_indices // page_size, dst_indices % page_size
    for index, rows in enumerate(src_ptrs):
        dst_ptrs[index // layers][pages, index % layers, slots] = rows[src_indices]


def copy_layer_from_pages(
    src_ptrs: Sequence[torch.Tensor],
    dst_ptrs: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    layer_id: int,
    page_size: int,
) -> None:
    """Host pages (page, layer, slot, ...) of one layer into device rows (token, ...)."""
    pages, slots = src_indices // page_size, src_indices % page_size
    for source, rows in zip(src_ptrs, dst_ptrs, strict=True):
        rows[dst_indices] = source[pages, layer_id, slots]


def copy_rows(
    src_layers: Sequence[torch.Tensor],
    dst_layers: Sequence[torch.Tensor],
    src_indices: torch.Tensor,
    dst_indices: torch.Tensor,
    page_size: int,
) -> None:
    """Rows (token, ...) layer by layer."""
    for source, target in zip(src_layers, dst_layers, strict=True):
        target[dst_indices] = source[src_indices]


class _Launchable:
    """Gives a plain function the ``kernel[grid](...)`` call shape."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __getitem__(self, _grid: object) -> Any:
        return self._function


def _paged_kernels(module: Any) -> None:
    """Torch versions of the paged allocator's two kernels (mem_cache/allocator/paged.py, 0.5.19 to 0.5.21).

    The callers check for a short free list only after the kernel, so a short one must not be read.
    """

    def extend(
        prefix: torch.Tensor,
        ends: torch.Tensor,
        last: torch.Tensor,
        free: torch.Tensor,
        out: torch.Tensor,
        _bs: int,
        page: int,
    ) -> None:
        new_pages = (ends + page - 1) // page - (prefix + page - 1) // page
        if int(new_pages.sum()) <= len(free):
            module.alloc_extend_naive(prefix, ends, last, free, out, page, out.device)

    def decode(
        ends: torch.Tensor, last: torch.Tensor, free: torch.Tensor, out: torch.Tensor, _bs: int, page: int
    ) -> None:
        opens_page = (ends - 1) % page == 0
        if int(opens_page.sum()) <= len(free):
            nth = torch.cumsum(opens_page, 0) - 1
            fresh = free[nth.clamp(min=0)] * page if len(free) else last
            out.copy_(torch.where(opens_page, fresh, last + 1))

    module.alloc_extend_kernel = _Launchable(extend)
    module.alloc_decode_kernel = _Launchable(decode)


def unpin(pool: Any) -> None:
    """Host pools of this class are not pinned: that registers memory with a device driver, which is not there."""
    original = pool.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def unpinned(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        bound.arguments["pin_memory"] = False
        original(*bound.args, **bound.kwargs)

    pool.__init__ = unpinned


def apply(adapter: VersionAdapter) -> None:
    """Install the shims. Call once, after importing the scheduler stack and before building one."""
    from sglang.srt.mem_cache.pool_host import mha

    mha.transfer_kv_all_layer_direct_lf_pf = copy_all_layers_to_pages
    mha.transfer_kv_per_layer_direct_pf_lf = copy_layer_from_pages
    mha.transfer_kv_direct = copy_rows

    unpin(mha.MHATokenToKVPoolHost)
    if adapter.paged_kernels_missing:
        from sglang.srt.mem_cache.allocator import paged

        _paged_kernels(paged)
    adapter.preload()
