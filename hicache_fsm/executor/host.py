"""The host pool: pages in one mapping that is faulted in once, when it is made."""

from math import prod
from typing import Any

from hicache_fsm.executor.backend import torch
from hicache_fsm.executor.device import DevicePool
from hicache_fsm.executor.mapping import map_populated
from hicache_fsm.executor.slots import SlotPool


class HostPool:
    """Pages of `page_size` tokens.  Each has a part for every side of the device pool."""

    def __init__(self, pages: int, page_size: int, device: DevicePool) -> None:
        """Raises HostMemoryError if the kernel refuses the memory."""
        self.page_size = page_size
        self.slots = SlotPool("host", pages)
        shapes = {name: (pages, page_size, rows.shape[1]) for name, rows in device.rows.items()}
        sizes = {name: prod(shape) * device.rows[name].element_size() for name, shape in shapes.items()}
        self.mapping = map_populated(sum(sizes.values()))
        self.rows: dict[str, Any] = {}
        self._bytes: dict[str, Any] = {}
        start = 0
        for name, shape in shapes.items():
            dtype = device.rows[name].dtype
            if not prod(shape):
                self.rows[name] = torch.zeros(shape, dtype=dtype)
            else:
                part = torch.frombuffer(self.mapping, dtype=dtype, count=prod(shape), offset=start)
                self.rows[name] = part.view(shape)
            # Bytes, whatever the element type: numpy has no bfloat16.
            self._bytes[name] = self.rows[name].view(torch.uint8).numpy()
            start += sizes[name]

    @property
    def free_pages(self) -> int:
        """Pages that can still be taken."""
        return self.slots.free

    def page(self, name: str, slot: int) -> memoryview:
        """The bytes of one part of one page, to read or to write."""
        return memoryview(self._bytes[name][slot]).cast("B")

    def from_device(self, device: DevicePool, name: str, slots: Any, pages: Any) -> None:
        """Copy tokens `slots` of the device into `pages`, page by page."""
        rows = device.rows[name][slots]
        self.rows[name][pages] = rows.view(len(pages), self.page_size, -1).to("cpu")

    def to_device(self, device: DevicePool, name: str, pages: Any, slots: Any) -> None:
        """Copy `pages` into tokens `slots` of the device."""
        rows = self.rows[name][pages].view(len(slots), -1)
        device.rows[name][slots] = rows.to(device.rows[name].device)
