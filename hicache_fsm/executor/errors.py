"""What the pools raise.  None of these changes anything."""


class MissingTorchError(ImportError):
    """PyTorch is not installed; the message names the extra that brings it."""


class HostMemoryError(MemoryError):
    """The kernel would not back the host pool with memory (#36705)."""


class PoolExhaustedError(MemoryError):
    """A pool has fewer free slots than were asked for."""


class OwnershipError(RuntimeError):
    """Slots were used or given back by somebody who does not own them."""


class DoubleFreeError(OwnershipError):
    """Slots were given back that had been given back before."""


class UseAfterFreeError(OwnershipError):
    """Slots were used that had been given back before."""


class PeerError(OwnershipError):
    """The wrong side of a hybrid SWA slot was freed: its peer is still mapped, or gone already (#36637)."""


class StillUnderIoError(RuntimeError):
    """Something was to be done that has to wait for I/O which has not ended."""


class NotReadError(StillUnderIoError):
    """Pages were to be kept that the read has not filled, or not yet."""
