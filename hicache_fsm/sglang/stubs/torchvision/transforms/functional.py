"""Image conversions of torchvision; none of them works here."""

from __future__ import annotations

from typing import NoReturn

from . import InterpolationMode

__all__ = ["InterpolationMode", "pil_to_tensor"]


def pil_to_tensor(*_args: object, **_kwargs: object) -> NoReturn:
    """Raises ``RuntimeError``."""
    raise RuntimeError("torchvision pil_to_tensor is not part of the CPU harness")
