"""Stand-in for Triton: kernels can be declared, and raise when launched.

Submodules and names that are not listed here resolve to placeholder classes, good for annotations,
subclassing and ``isinstance``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar, NoReturn

__version__ = "3.5.0"
__path__: list[str] = []


class PlaceholderType(type):
    """A class whose unknown attributes are placeholder classes too."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = PlaceholderType(name, (), {})
        setattr(cls, name, made)
        return made

    def __call__(cls, *_args: object, **_kwargs: object) -> Any:
        return type.__call__(cls)


class KernelInterface:
    """A declared kernel."""

    def __init__(self, fn: Callable[..., object] | None = None, **_options: object) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", "kernel")

    def _launch(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise RuntimeError(f"triton kernel {self.__name__} needs a device, and this is a CPU harness")

    def __getitem__(self, _grid: object) -> Callable[..., NoReturn]:
        return self._launch

    def __call__(self, *_args: object, **_kwargs: object) -> NoReturn:
        self._launch()

    run = _launch


class JITFunction(KernelInterface):
    """A kernel declared with ``jit``."""


class Autotuner(KernelInterface):
    """A kernel declared with ``autotune``."""


class Heuristics(KernelInterface):
    """A kernel declared with ``heuristics``."""


class CompiledKernel:
    """A compiled kernel; there are none."""


class Config:
    """A tuning configuration; kept as it was given."""

    def __init__(self, kwargs: dict[str, object] | None = None, **options: object) -> None:
        self.kwargs = kwargs or {}
        self.options = options


def jit(fn: Callable[..., object] | None = None, **options: object) -> Any:
    """Declare a kernel, as ``@jit`` or ``@jit(...)``."""
    return JITFunction(fn) if fn is not None else lambda f: JITFunction(f, **options)


def autotune(*_args: object, **_kwargs: object) -> Callable[[Any], Any]:
    """Declare tuning; the kernel stays as it is."""
    return lambda kernel: kernel


def heuristics(*_args: object, **_kwargs: object) -> Callable[[Any], Any]:
    """Declare heuristics; the kernel stays as it is."""
    return lambda kernel: kernel


def cdiv(x: int, y: int) -> int:
    """Ceiling division."""
    return -(-x // y)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(0, n - 1).bit_length()


class _Driver:
    @property
    def active(self) -> NoReturn:
        raise RuntimeError("no active triton driver: this is a CPU harness")


_REAL: dict[str, dict[str, object]] = {
    "triton.runtime": {"driver": _Driver(), "JITFunction": JITFunction, "KernelInterface": KernelInterface},
    "triton.runtime.jit": {"JITFunction": JITFunction, "KernelInterface": KernelInterface},
    "triton.runtime.autotuner": {"Autotuner": Autotuner, "Heuristics": Heuristics},
    "triton.compiler": {"CompiledKernel": CompiledKernel},
}


class _PlaceholderModule(ModuleType):
    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = PlaceholderType(name, (), {})
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith("triton.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _PlaceholderModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_REAL.get(module.__name__, {}))


sys.meta_path.insert(0, _Finder())

from . import compiler, language, runtime, testing  # noqa: E402  (found by the finder above)

__all__ = [
    "Config",
    "autotune",
    "cdiv",
    "compiler",
    "heuristics",
    "jit",
    "language",
    "next_power_of_2",
    "runtime",
    "testing",
]
