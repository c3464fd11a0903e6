"""What one drain of the storage queues did, told from the queues before it and the entries after it.

The drain (``_drain_storage_control_queues_impl`` of upstream's unified_radix_cache.py) decides inside nested
functions that no hook can reach, so each operation it will meet is noted first and classified afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .keeper import head
from .recorder import Recorder
from .view import EngineView, operation_key, rid_of


@dataclass(frozen=True, slots=True)
class Met:
    """An operation as it was before the drain; ``hit`` is tokens stored."""

    operation: Any
    key: Any
    live: Any
    """The operation registered for the same key: this one, a newer one, or None."""
    hit: int
    terminated: bool


def _meet(view: EngineView, operations: Iterable[Any]) -> list[Met]:
    met = []
    for operation in operations:
        key = operation_key(operation)
        met.append(
            Met(
                operation,
                key,
                view.live_operation(key),
                int(operation.storage_hit_count or 0),
                bool(operation.is_terminated()),
            )
        )
    return met


class Drain:
    """One drain; make it before, call ``tell`` after. ``pins`` maps a key to the last pin verdict since."""

    def __init__(self, recorder: Recorder, view: EngineView, hits: int | None, acks: int | None) -> None:
        self._recorder = recorder
        self._view = view
        self.pins: dict[Any, str] = {}
        controller = view.controller
        self._parked = _meet(view, view.parked())
        self._answered = _meet(view, head(controller.prefetch_hit_queue, hits))
        finished = [ack.operation for ack in head(controller.ack_prefetch_queue, acks) if ack.completed_req]
        self._finished = _meet(view, finished)

    def tell(self) -> None:
        """Write what happened to each operation, in the order in which the drain met them."""
        turn_taken = bool(self._view.parked())
        for met in self._parked:
            self._each(met, self._tell_parked)
        for met in self._answered:
            self._each(met, lambda one: self._tell_answer(one, turn_taken))
        for met in self._finished:
            self._each(met, self._tell_finished)

    def _each(self, met: Met, tell: Callable[[Met], None]) -> None:
        if met.live is met.operation:
            tell(met)
        elif met.live is None or self._view.live_operation(met.key) is met.live:
            if met.operation not in self._view.parked():
                self._recorder.end_orphan(met.operation)
        else:
            self._recorder.stale(met.operation)

    def _still_live(self, met: Met) -> bool:
        return self._view.live_operation(met.key) is met.operation

    def _write(self, event: str, met: Met, **members: object) -> None:
        self._recorder.prefetch(event, rid_of(met.key), **members)

    def _tell_parked(self, met: Met) -> None:
        if not self._still_live(met):
            self._tell_unusable(met, self._recorder.end_operation(met.operation))
        elif met.operation.host_indices is not None:
            self._write(
                "unpark",
                met,
                facts={"room": True},
                op=self._recorder.number_of(met.operation),
                tokens=met.hit,
            )

    def _tell_answer(self, met: Met, turn_taken: bool) -> None:
        asked = int(met.operation.stats_requested_tokens)
        if self._still_live(met):
            op = self._recorder.number_of(met.operation)
            if met.operation.host_indices is not None:
                self._write("hit", met, facts={"room": True}, op=op, tokens=met.hit, wanted_tokens=asked)
            else:
                why = self._why_parked(met, turn_taken)
                self._write(
                    "hit", met, facts={"room": False}, op=op, why=why, tokens=met.hit, wanted_tokens=asked
                )
            return
        op = self._recorder.end_operation(met.operation)
        if met.terminated:
            self._write("miss", met, op=op, why="terminated", tokens=met.hit, wanted_tokens=asked)
        elif met.hit < self._view.tree.prefetch_threshold:
            why = "below_threshold" if met.hit else "absent"
            self._write("miss", met, op=op, why=why, tokens=met.hit, wanted_tokens=asked)
        elif not self._view.buffer_mode and self._view.marked(met.key):
            self._write(
                "hit",
                met,
                facts={"room": False},
                op=op,
                why="host_capacity",
                tokens=met.hit,
                wanted_tokens=asked,
            )
        elif not self._view.buffer_mode:
            # 0.5.19 arms no retry here
            self._write("revoke", met, op=op, why="host_capacity", tokens=met.hit)
        else:
            self._tell_unusable(met, op)

    def _why_parked(self, met: Met, turn_taken: bool) -> str:
        verdict = self.pins.get(met.key)
        if verdict == "cap_busy":
            return "pin_cap"
        if verdict is not None:
            return "host_capacity"
        ahead = self._view.parked()
        return "turn" if turn_taken and ahead and ahead[0] is not met.operation else "rate_limited"

    def _tell_unusable(self, met: Met, op: int | None) -> None:
        verdict = self.pins.get(met.key)
        if verdict == "anchor_lost":
            self._write("lose_anchor", met, op=op, tokens=met.hit)
        elif verdict == "unservable":
            self._write("revoke", met, op=op, why="unservable", tokens=met.hit)
        else:
            too_big = met.hit > self._view.controller.mem_pool_host.size
            self._write("revoke", met, op=op, why="oversize" if too_big else "device_covered", tokens=met.hit)

    def _tell_finished(self, met: Met) -> None:
        if self._still_live(met):
            return
        op = self._recorder.end_operation(met.operation)
        hold = self._view.hold(met.key)
        usable = int(hold.num_tokens) if hold is not None else 0
        if not self._view.buffer_mode:
            usable = self._view.loaded_tokens(met.key)
        # a hold may have nothing but slots of the pools beside the KV pool
        if usable or hold is not None:
            self._write("done", met, op=op, tokens=usable)
        else:
            done = int(met.operation.completed_tokens)
            wanted = len(met.operation.hash_value) * int(self._view.tree.page_size)
            self._write(
                "fail", met, op=op, why="read_error" if done < wanted else "nothing_usable", tokens=done
            )
