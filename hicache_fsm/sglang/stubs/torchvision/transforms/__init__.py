"""Interpolation modes of torchvision."""

from enum import Enum


class InterpolationMode(Enum):
    """Interpolation modes; only the names matter."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"
