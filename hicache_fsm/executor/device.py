"""The device pool: KV rows of tokens, with a full side, a sliding-window (SWA) side, or both."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from hicache_fsm.executor.backend import torch
from hicache_fsm.executor.errors import DoubleFreeError, PeerError
from hicache_fsm.executor.slots import Block, SlotPool

Layout = Literal["dense", "hybrid", "swa"]
UNMAPPED: Final = -1


@dataclass(slots=True, eq=False)
class Span:
    """The slots of a run of tokens, in order, one block a side; a side that is absent or freed is None."""

    full: Block | None
    swa: Block | None

    def __len__(self) -> int:
        return max((len(block) for block in self.blocks), default=0)

    @property
    def blocks(self) -> list[Block]:
        """The sides that are there."""
        return [block for block in (self.full, self.swa) if block is not None]

    def split(self, tokens: int) -> "tuple[Span, Span]":
        """The leading tokens, and the rest."""
        halves = [
            block.split(tokens) if block is not None else (None, None) for block in (self.full, self.swa)
        ]
        (full, full_rest), (swa, swa_rest) = halves
        return Span(full, swa), Span(full_rest, swa_rest)

    def pass_on(self, owner: str) -> None:
        """Somebody else owns them from here on."""
        for block in self.blocks:
            block.pass_on(owner)


class DevicePool:
    """KV rows (tokens, width) a side, and the slots of each side.

    A hybrid pool maps the full slot of a token to its SWA slot (`full_to_swa`, shape (tokens,), -1 for none). A
    plain `free` releases both halves by way of the mapping; `free_swa` leaves a tombstone, whose full half
    `free_full` then releases (#36637).
    """

    def __init__(
        self,
        layout: Layout,
        tokens: int,
        width: int,
        *,
        swa_tokens: int = 0,
        dtype: Any = None,
        device: Any = "cpu",
    ) -> None:
        """`tokens` and `swa_tokens` are the sizes of the sides, `width` the elements of one token's row."""
        self.layout = layout
        sizes = {"kv": tokens if layout != "swa" else 0, "swa": swa_tokens if layout != "dense" else 0}
        names = [
            name for name, side in (("kv", "dense hybrid"), ("swa", "swa hybrid")) if layout in side.split()
        ]
        self.rows: dict[str, Any] = {
            name: torch.zeros((sizes[name], width), dtype=dtype or torch.float32, device=device)
            for name in names
        }
        self.pools = {name: SlotPool(name, sizes[name], device) for name in names}
        self._full, self._swa = self.pools.get("kv"), self.pools.get("swa")
        self.full_to_swa = torch.full((sizes["kv"],), UNMAPPED, dtype=torch.int64, device=device)

    @property
    def free_tokens(self) -> int:
        """Tokens that `take` can still give."""
        return min(pool.free for pool in self.pools.values())

    def take(self, tokens: int, owner: str) -> Span:
        """Slots for so many tokens.  Raises PoolExhaustedError, and takes nothing then."""
        full = self._full.take(tokens, owner) if self._full is not None else None
        span = Span(full, None)
        try:
            self.take_swa(span, tokens, owner)
        except BaseException:
            if full is not None:
                full.release()
            raise
        return span

    def take_swa(self, span: Span, tokens: int, owner: str) -> None:
        """The SWA half that a span has not got.  Raises PoolExhaustedError, and takes nothing then."""
        if self._swa is None or span.swa is not None:
            return
        span.swa = self._swa.take(tokens, owner)
        if span.full is not None:
            self.full_to_swa[span.full.slots] = span.swa.slots

    def free(self, span: Span) -> None:
        """Release both halves.  Raises PeerError for a tombstone, whose SWA half is gone (#36637)."""
        if self._swa is not None and span.swa is None:
            raise PeerError(f"{span} has no SWA side any more: free its full side only")
        self._check_mapping(span)
        if span.swa is not None:
            self.free_swa(span)
        self._free_full(span)

    def free_swa(self, span: Span) -> None:
        """Release the SWA half; nothing on a dense pool.  Raises DoubleFreeError the second time."""
        if self._swa is None:
            return
        if span.swa is None:
            raise DoubleFreeError(f"the SWA side of {span} is freed twice")
        self._check_mapping(span)
        if span.full is not None:
            self.full_to_swa[span.full.slots] = UNMAPPED
        span.swa.release()
        span.swa = None

    def free_full(self, span: Span) -> None:
        """Release the full half alone; nothing on a pool that is all SWA.

        Raises PeerError while the SWA half is still mapped: it would belong to nobody (#36637).
        """
        if span.swa is not None and span.full is not None:
            raise PeerError(f"{span} has its SWA side still: free both")
        self._free_full(span)

    def give_back(self, span: Span) -> None:
        """Release whatever halves the span still has."""
        if span.swa is not None:
            self.free_swa(span)
        self._free_full(span)

    def load(self, name: str, block: Block) -> Any:
        """The rows of a block, shape (tokens, width): a copy."""
        return self.rows[name][block.slots]

    def fill(self, name: str, block: Block, rows: Any) -> None:
        """Write the rows of a block, shape (tokens, width)."""
        self.rows[name][block.slots] = rows.to(self.rows[name].device)

    def copy(self, name: str, slots: Any, to: Any) -> None:
        """Copy the rows of some slots of a side to others."""
        self.rows[name][to] = self.rows[name][slots]

    def wait(self) -> None:
        """Return when copies that were begun have arrived; only GPUs need it."""
        for rows in self.rows.values():
            if rows.is_cuda:
                torch.cuda.synchronize(rows.device)

    def audit(self) -> list[str]:
        """What is wrong with the books of the sides, one line each."""
        found = [line for pool in self.pools.values() for line in pool.audit()]
        if self._full is not None and self._swa is not None:
            full = (self.full_to_swa != UNMAPPED).nonzero().flatten()
            swa = self.full_to_swa[full]
            stale = ~(self._full.owned(full) & self._swa.owned(swa))
            if lost := int(stale.sum()) + len(swa) - len(swa.unique()):
                found.append(f"{lost} full slots are mapped to SWA slots that are not theirs")
        return found

    def _free_full(self, span: Span) -> None:
        if span.full is not None:
            span.full.release()
            span.full = None

    def _check_mapping(self, span: Span) -> None:
        if span.full is None or span.swa is None:
            return
        if not bool((self.full_to_swa[span.full.slots] == span.swa.slots).all()):
            raise PeerError(f"{span} is mapped to other SWA slots than its own")
