"""Image decoding names of torchvision; none of them works here."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn


class ImageReadMode(Enum):
    """Colour modes; only the names matter."""

    UNCHANGED = 0
    GRAY = 1
    RGB = 3


def decode_image(*_args: object, **_kwargs: object) -> NoReturn:
    """Raises ``RuntimeError``."""
    raise RuntimeError("torchvision.io.decode_image is not part of the CPU harness")


def decode_jpeg(*_args: object, **_kwargs: object) -> NoReturn:
    """Raises ``RuntimeError``."""
    raise RuntimeError("torchvision.io.decode_jpeg is not part of the CPU harness")
