"""Plays a workload on a stepped engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from .aborts import StageAborts
from .stepped import SteppedScheduler
from .workload import Session, Turn


class Driver:
    """Plays sessions on an engine, one pass at a time."""

    def __init__(
        self, engine: SteppedScheduler, sessions: list[Session], stage_aborts: StageAborts | None = None
    ) -> None:
        self._engine = engine
        self._stage_aborts = stage_aborts
        self._waiting: list[tuple[Session, Iterator[Turn]]] = [(s, iter(s.turns)) for s in sessions]
        self._live: dict[str, tuple[Session, Iterator[Turn]]] = {}
        self._aborts: dict[str, int] = {}

    def _submit_ready(self) -> None:
        still = []
        for session, turns in self._waiting:
            held_back = session.barrier and session.turns and self._engine.writes_in_flight
            if self._engine.passes < session.start or held_back:
                still.append((session, turns))
                continue
            turn = next(turns, None)
            if turn is None:
                continue
            self._engine.submit(turn.rid, turn.prompt, max_new_tokens=turn.max_new_tokens)
            self._live[turn.rid] = (session, turns)
            if self._stage_aborts is not None:
                self._stage_aborts.submitted(turn.rid)
            if turn.abort_after is not None:
                self._aborts[turn.rid] = self._engine.passes + turn.abort_after
        self._waiting = still

    def _abort_due(self) -> None:
        for rid in [rid for rid, due in self._aborts.items() if due <= self._engine.passes]:
            del self._aborts[rid]
            if rid in self._live:
                self._engine.abort(rid)
        for rid in self._stage_aborts.due() if self._stage_aborts is not None else ():
            self._engine.abort(rid)

    def _collect(self) -> None:
        for rid in [rid for rid in self._live if self._engine.outputs[rid].finish is not None]:
            self._waiting.append(self._live.pop(rid))
            self._aborts.pop(rid, None)

    def run(self, progress: Callable[[str], None], *, limit: int = 50_000, every: int = 500) -> Counter[str]:
        """Play to the end and drain; how many requests ended how, and ``passes``.

        Raises ``RuntimeError`` after ``limit`` passes.
        """
        while self._waiting or self._live:
            if self._engine.passes >= limit:
                raise RuntimeError(f"{len(self._live)} requests still alive after {limit} passes")
            self._submit_ready()
            self._abort_due()
            self._engine.step()
            self._collect()
            if self._engine.passes % every == 0:
                progress(
                    f"pass {self._engine.passes}: {len(self._live)} alive, {len(self._waiting)} between turns"
                )
        self._engine.drain()
        counts = Counter(str(output.finish) for output in self._engine.outputs.values())
        counts["passes"] = self._engine.passes
        return counts
