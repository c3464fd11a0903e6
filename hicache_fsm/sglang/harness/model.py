"""A tiny Llama with random normal weights, written to a folder as any checkpoint is."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

LAYERS = 2
HIDDEN = 64
HEADS = 2
VOCABULARY = 512


def write_model(folder: Path, *, seed: int, context_tokens: int, heads: int = HEADS) -> Path:
    """Write ``config.json`` and float32 weights into ``folder`` and return it; same seed, same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": HIDDEN // heads,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": context_tokens,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
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
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": normal(VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        for name in "qkvo":
            weights[f"{prefix}.self_attn.{name}_proj.weight"] = normal(HIDDEN, HIDDEN)
        weights[f"{prefix}.mlp.gate_proj.weight"] = normal(2 * HIDDEN, HIDDEN)
        weights[f"{prefix}.mlp.up_proj.weight"] = normal(2 * HIDDEN, HIDDEN)
        weights[f"{prefix}.mlp.down_proj.weight"] = normal(HIDDEN, 2 * HIDDEN)
        weights[f"{prefix}.input_layernorm.weight"] = torch.ones(HIDDEN)
        weights[f"{prefix}.post_attention_layernorm.weight"] = torch.ones(HIDDEN)
    return weights
