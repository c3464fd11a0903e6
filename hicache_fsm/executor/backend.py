"""PyTorch, or the one line that says how to get it."""

from hicache_fsm.executor.errors import MissingTorchError

try:
    import torch
except ImportError as absent:
    raise MissingTorchError('torch pools need PyTorch: pip install "hicache-fsm[torch]"') from absent

__all__ = ["torch"]
