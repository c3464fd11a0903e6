"""Stand-in for SGLang's device kernels: any name imports, and raises when called."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

__version__ = "0.0.0"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_args: object, **_kwargs: object) -> NoReturn:
        raise RuntimeError(f"sgl_kernel.{name} needs a device, and this is a CPU harness")

    kernel.__name__ = name
    return kernel
