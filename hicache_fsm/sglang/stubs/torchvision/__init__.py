"""Stand-in for torchvision: the names that image processors import, none that computes."""

from . import io, transforms

__version__ = "0.0.0"
__all__ = ["io", "transforms"]
