"""Layouts with a pool beside the KV pool: a layer that sees a window of tokens (SWA), or keeps a state (Mamba).

For ``swa`` the tiny Llama's first layer becomes a sliding-window layer, as a checkpoint's config says it; for
``mamba`` the model is ``states``'. Pools, allocators, tree components, controller and scheduler are the installed
ones; here are only the model and what a CPU lacks.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..settings import EngineSettings
from .model import LAYERS, write_model
from .states import apply_state_shims, write_state_model

WINDOW_LAYER = 0


def write(folder: Path, settings: EngineSettings) -> Path:
    """Write the model of a layout into ``folder`` and return it."""
    if settings.layout == "mamba":
        return write_state_model(folder, seed=settings.seed, context_tokens=settings.context_tokens)
    write_model(folder, seed=settings.seed, context_tokens=settings.context_tokens, heads=settings.heads)
    if settings.layout == "swa":
        path = folder / "config.json"
        pattern = [int(layer == WINDOW_LAYER) for layer in range(LAYERS)]
        window = {"sliding_window": settings.window_tokens, "hybrid_layer_pattern": pattern}
        path.write_text(json.dumps(json.loads(path.read_text()) | window | {"is_hybrid_swa": True}))
    return folder


def arguments(settings: EngineSettings) -> dict[str, Any]:
    """The ``ServerArgs`` fields that a layout adds."""
    if settings.layout == "mamba":
        return {"max_mamba_cache_size": settings.states}
    return {"swa_full_tokens_ratio": settings.window_share} if settings.layout == "swa" else {}


def prepare(settings: EngineSettings) -> None:
    """What a layout needs before a scheduler is built."""
    if settings.layout == "mamba":
        apply_state_shims()


def finish(scheduler: Any, settings: EngineSettings) -> None:
    """Make the window layer one, once the model is loaded: SGLang's Llama has no such layer of its own."""
    if settings.layout != "swa":
        return
    runner = scheduler.tp_worker.model_runner
    # the last token included, as SGLang's own window models count
    runner.model.model.layers[WINDOW_LAYER].self_attn.attn.sliding_window_size = settings.window_tokens - 1
    mapping = scheduler.token_to_kv_pool_allocator.full_to_swa_index_mapping
    backend = runner.attn_backend
    for name in ("_run_sdpa_forward_extend", "_run_sdpa_forward_decode"):
        setattr(backend, name, _translated(getattr(backend, name), mapping))


def _translated(attend: Callable[..., Any], mapping: Any) -> Callable[..., Any]:
    """SGLang's CPU attention reads window layers by the slots of the full pool: give it those of the window pool."""

    @functools.wraps(attend)
    def attended(
        query: Any, output: Any, keys: Any, values: Any, req_to_token: Any, *rest: Any, **kwargs: Any
    ) -> Any:
        window = kwargs.get("sliding_window_size")
        if window is not None and window > -1:
            req_to_token = mapping[req_to_token]
        return attend(query, output, keys, values, req_to_token, *rest, **kwargs)

    return attended
