"""A seeded multi-turn workload that makes every part of the prefetch lifecycle happen.

Prompts are fixed by the seed and never contain model output, so that runs with different caches can be
compared token by token. Time is counted in scheduling passes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count

from .model import VOCABULARY

FIRST_TOKEN = 3
"""Smaller ids are reserved by the tokenizer the model pretends to have."""


@dataclass(frozen=True, slots=True)
class WorkloadPlan:
    """Shape of a workload; lengths are tokens."""

    requests: int | None = None
    """Exactly so many requests, in as many sessions as that takes; None: what ``sessions`` and ``turns`` give."""
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
    """The sessions of ``plan``; a session ends early where its prompt would outgrow ``context_tokens``.

    Raises ``ValueError`` for a number of requests below 1, or when no prompt fits.
    """
    if plan.requests is not None and plan.requests < 1:
        raise ValueError(f"{plan.requests} requests: at least one is needed")
    if plan.shared_tokens + plan.turn_tokens[1] + plan.output_tokens[1] >= context_tokens - 8:
        raise ValueError(f"a first prompt does not fit a context of {context_tokens} tokens")
    rng = random.Random(seed)

    def tokens(length: int) -> list[int]:
        return [rng.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(length)]

    heads = [tokens(plan.shared_tokens) for _ in range(plan.families)]
    sessions: list[Session] = []
    made = 0
    for index in count() if plan.requests is not None else range(plan.sessions):
        if plan.requests is not None and made >= plan.requests:
            break
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
        if plan.requests is not None:
            del turns[plan.requests - made :]
            made += len(turns)
        sessions.append(Session(index, index * plan.stagger, barrier, tuple(turns)))
    return sessions
