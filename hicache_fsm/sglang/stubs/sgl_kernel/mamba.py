"""The kernels of state layers: as the package's own."""

from . import __getattr__

__all__ = ["__getattr__"]
