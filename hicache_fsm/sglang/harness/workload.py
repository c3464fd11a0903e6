"""A seeded multi-turn workload that makes every part of the prefetch lifecycle happen.

Prompts are fixed by the seed and never contain model output, so that runs with different caches can be
compared token by token. Time is counted in scheduling passes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .model import VOCABULARY
from .stepped import SteppedScheduler

FIRST_TOKEN = 3
"""Smaller ids are reserved by the tokenizer the model pretends to have."""


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """Shape of a workload; lengths are tokens."""

    sessions: int = 32
    turns: int = 4
    families: int = 3
    """Sessions of one family share their first ``shared_tokens``."""
    shared_tokens: int = 48
    turn_tokens: tuple[int, int] = (40, 96)
    output_tokens: tuple[int, int] = (6, 24)
    barrier_share: float = 0.5
    """Share of sessions that start a turn only when nothing is on its way to storage."""
    abort_share: float = 0.15
    abort_after: tuple[int, ...] = (0, 1, 2, 3, 5, 8, 13, 21, 34)
    """Passes between submission and abort, drawn uniformly."""
    stagger: int = 2
    """Passes between the first turns of two sessions."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session; ``prompt`` holds token ids."""

    rid: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    abort_after: int | None


@dataclass(frozen=True, slots=True)
class Session:
    """The turns of one conversation, in order."""

    index: int
    start: int
    barrier: bool
    turns: tuple[Turn, ...]


def make_sessions(plan: WorkloadPlan, seed: int, context_tokens: int) -> list[Session]:
    """The sessions of ``plan``; a session ends early where its prompt would outgrow ``context_tokens``."""
    rng = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(count)]

    heads = [tokens(plan.shared_tokens) for _ in range(plan.families)]
    sessions = []
    for index in range(plan.sessions):
        barrier = rng.random() < plan.barrier_share
        prompt = list(heads[index % plan.families])
        turns = []
        for number in range(plan.turns):
            prompt += tokens(rng.randint(*plan.turn_tokens))
            new = rng.randint(*plan.output_tokens)
            abort = rng.choice(plan.abort_after) if rng.random() < plan.abort_share else None
            if len(prompt) + new >= context_tokens - 8:
                break
            turns.append(Turn(f"s{index:02d}t{number}", tuple(prompt), new, abort))
        sessions.append(Session(index, index * plan.stagger, barrier, tuple(turns)))
    return sessions


class Driver:
    """Plays sessions on an engine, one pass at a time."""

    def __init__(self, engine: SteppedScheduler, sessions: list[Session]) -> None:
        self._engine = engine
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
            if turn.abort_after is not None:
                self._aborts[turn.rid] = self._engine.passes + turn.abort_after
        self._waiting = still

    def _abort_due(self) -> None:
        for rid in [rid for rid, due in self._aborts.items() if due <= self._engine.passes]:
            del self._aborts[rid]
            if rid in self._live:
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
