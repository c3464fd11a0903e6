"""A tiny LFM2 with random normal weights, whose first layer keeps a state instead of tokens, and what a CPU lacks.

LFM2's short convolution is the one state layer of SGLang whose maths is short enough to be said in torch here. Its
state pool, allocators, tree component, host pool and transfers are those of all of SGLang's Mamba models.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import torch
from safetensors.torch import save_file

from .model import HEADS, HIDDEN, LAYERS, VOCABULARY

STATE_LAYER = 0
KERNEL = 3
"""Tokens that the convolution of a state layer sees."""
IMPORTED = ("fused_sigmoid_gating_delta_rule_update_cpu", "fused_gdn_gating_cpu")


def write_state_model(folder: Path, *, seed: int, context_tokens: int) -> Path:
    """Write ``config.json`` and float32 weights into ``folder`` and return it; same seed, same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Lfm2ForCausalLM"],
        "model_type": "lfm2",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": context_tokens,
        "norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "conv_L_cache": KERNEL,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv" if layer == STATE_LAYER else "full_attention" for layer in range(LAYERS)],
        "tie_word_embeddings": False,
        "dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(_weights(seed), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32) * shape[-1] ** -0.5

    weights = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator),
        "model.embedding_norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": normal(VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        if layer == STATE_LAYER:
            weights[f"{prefix}.conv.conv.weight"] = normal(HIDDEN, 1, KERNEL)
            weights[f"{prefix}.conv.in_proj.weight"] = normal(3 * HIDDEN, HIDDEN)
            weights[f"{prefix}.conv.out_proj.weight"] = normal(HIDDEN, HIDDEN)
        else:
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                weights[f"{prefix}.self_attn.{name}.weight"] = normal(HIDDEN, HIDDEN)
            for name in ("q_layernorm", "k_layernorm"):
                weights[f"{prefix}.self_attn.{name}.weight"] = torch.ones(HIDDEN // HEADS)
        weights[f"{prefix}.feed_forward.w1.weight"] = normal(2 * HIDDEN, HIDDEN)
        weights[f"{prefix}.feed_forward.w3.weight"] = normal(2 * HIDDEN, HIDDEN)
        weights[f"{prefix}.feed_forward.w2.weight"] = normal(HIDDEN, 2 * HIDDEN)
        weights[f"{prefix}.operator_norm.weight"] = torch.ones(HIDDEN)
        weights[f"{prefix}.ffn_norm.weight"] = torch.ones(HIDDEN)
    return weights


def apply_state_shims() -> None:
    """Torch in place of the convolution's kernels and of copies of states. Call once, before a scheduler is built."""
    os.environ["SGLANG_MAMBA_CONV_DTYPE"] = "float32"  # as the model: outputs are compared token by token
    kernels = import_module("sgl_kernel.mamba")
    # looked up when the backends of state layers are imported; no layer of this model calls them
    for name in IMPORTED:
        setattr(torch.ops.sgl_kernel, name, getattr(kernels, name))
    from sglang.srt.mem_cache.pool_host import mamba
    from sglang.srt.models import lfm2

    from . import shims

    lfm2.causal_conv1d_fn = _convolve
    lfm2.causal_conv1d_update = _convolve_one
    mamba.transfer_kv_all_layer_direct_lf_pf = shims.copy_all_layers_to_pages
    mamba.transfer_kv_per_layer_direct_pf_lf = shims.copy_layer_from_pages
    mamba.transfer_kv_direct = shims.copy_rows
    shims.unpin(mamba.MambaPoolHost)


def _convolve(
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    query_start_loc: torch.Tensor,
    cache_indices: torch.Tensor,
    has_initial_state: torch.Tensor,
    conv_states: torch.Tensor,
    activation: None,
) -> torch.Tensor:
    """Rows (channel, tokens of all requests) against the last tokens of each; states (slot, channel, width - 1)."""
    out = torch.empty_like(rows)
    bounds = query_start_loc.tolist()
    for number, (begin, end) in enumerate(pairwise(bounds)):
        slot = int(cache_indices[number])
        before = conv_states[slot] if bool(has_initial_state[number]) else torch.zeros_like(conv_states[slot])
        whole = torch.cat((before, rows[:, begin:end]), dim=1)
        out[:, begin:end] = torch.conv1d(whole[None], weight[:, None], bias, groups=len(weight))[0]
        conv_states[slot] = whole[:, whole.shape[1] - conv_states.shape[2] :]
    return out


def _convolve_one(
    rows: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    activation: None,
    conv_state_indices: torch.Tensor,
) -> torch.Tensor:
    """One row (channel) a request."""
    whole = torch.cat((conv_state[conv_state_indices], rows[:, :, None]), dim=2)
    conv_state[conv_state_indices] = whole[:, :, 1:]
    out = (whole * weight).sum(dim=2)
    return out if bias is None else out + bias
