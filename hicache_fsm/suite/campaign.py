"""Random runs for as long as wanted: what they reached, and what they found, each finding once and small.

Hypothesis is left out of the loop: it plans a bounded number of examples and stops at the first failure, whereas a
campaign goes on after a finding, counts what it reaches, and must repeat any single run by its number alone.  The same
worlds, events and judges serve both.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from hicache_fsm.spec import Machine
from hicache_fsm.suite.coverage import Coverage, last_exit
from hicache_fsm.suite.play import Play, Problem, play
from hicache_fsm.suite.protocol import Event, Target, UnsupportedError, World
from hicache_fsm.suite.shrink import shrink
from hicache_fsm.suite.swarm import Swarm, as_dense, plainer

STEPS: Final = 60
"""Events of one run, before it is brought to rest."""

BATCH: Final = 100
"""Runs that a worker does before it reports."""

ROUND_S: Final = 5.0
"""Seconds after which a worker reports, however few runs it did."""

SLOW_ROUND_S: Final = 60.0
"""The same for a target with an engine of its own to start, which each worker starts for each report."""

Cluster = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that broke something: its number, its world, and its events up to the problem.

    `rest` is what brought the cache to rest after them, where the problem showed only then.
    """

    run: int
    world: World
    events: tuple[Event, ...]
    problem: Problem
    rest: tuple[Event, ...] = ()

    @property
    def cluster(self) -> Cluster:
        """What is thought the same finding: the invariant, and the exit taken last before it broke."""
        return self.problem.invariant, last_exit(self.events)


class BuildError(Exception):
    """A cache could not be built in that world; `cause` is what its target raised."""

    def __init__(self, world: World, cause: Exception) -> None:
        text = str(cause).partition("\n")[0]
        super().__init__(f"the cache could not be built: {type(cause).__name__}: {text}")
        self.world = world
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Batch:
    """What one worker reports."""

    coverage: Coverage
    failures: tuple[Failure, ...]
    steps: int
    interrupted: bool = False


@dataclass(slots=True)
class Campaign:
    """What a campaign has found so far.  `runs_of` counts the runs that fell into each cluster before shrinking."""

    target: str
    seed: int
    seconds: float = 0.0
    steps: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    findings: dict[Cluster, Failure] = field(default_factory=dict)
    runs_of: dict[Cluster, int] = field(default_factory=dict)
    interrupted: bool = False

    def as_json(self, machine: Machine) -> dict[str, Any]:
        """Everything but the scenarios, for machines."""
        return {
            "target": self.target,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "events": self.steps,
            "interrupted": self.interrupted,
            "coverage": self.coverage.as_json(machine),
            "findings": [
                {
                    "invariant": invariant,
                    "exit": exit_,
                    "events": len(failure.events),
                    "run": failure.run,
                    "message": failure.problem.message,
                }
                for (invariant, exit_), failure in self.findings.items()
            ],
        }


def run_campaign(
    target: Target,
    *,
    seconds: float,
    seed: int = 0,
    jobs: int = 1,
    backend: str = "",
    exact: bool = False,
    tell: Callable[[Campaign], None] = lambda campaign: None,
) -> Campaign:
    """Random runs of `target` for so many seconds, on `jobs` workers of joblib's `backend` (its default if empty).

    Run n of a seed is the same run on every machine and with any number of jobs; how many runs there are depends on
    the time.  Ctrl-C ends the campaign as the time does.  Raises ModuleNotFoundError without joblib, and what the
    target raises when it cannot be built at all.
    """
    campaign = Campaign(target.name, seed)
    began = time.monotonic()
    try:
        for batches in _rounds(target, seed, jobs, backend, exact, began + seconds):
            for batch in batches:
                _take(campaign, target, batch, exact, deadline=began + seconds)
            campaign.seconds = time.monotonic() - began
            tell(campaign)
            if campaign.interrupted:
                break
    except KeyboardInterrupt:
        campaign.interrupted = True
    campaign.seconds = time.monotonic() - began
    return campaign


def run_batch(target: Target, seed: int, numbers: Sequence[int], deadline: float, exact: bool) -> Batch:
    """The runs of these numbers, until `deadline` seconds from now; what was found by then if interrupted."""
    coverage, failures, steps = Coverage(), list[Failure](), 0
    ends = time.monotonic() + deadline
    interrupted = False
    try:
        for number in numbers:
            if time.monotonic() > ends:
                break
            try:
                run, problems = one_run(target, seed, number, exact)
            except BuildError as error:
                if number == 0:
                    raise error.cause from None
                failures.append(Failure(number, error.world, (), Problem("crash", str(error), 0)))
                break
            coverage.add(run.coverage)
            steps += len(run.events)
            if problems:
                failures.append(failure_of(run, problems[0], number))
    except KeyboardInterrupt:
        interrupted = True
    return Batch(coverage, tuple(failures), steps, interrupted)


def run_share(target: Target, seed: int, numbers: Sequence[int], deadline: float, exact: bool) -> Batch:
    """A batch in a worker process, where the target is a copy: whatever it has started ends with the batch."""
    try:
        return run_batch(target, seed, numbers, deadline, exact)
    finally:
        stop = getattr(target, "stop", None)
        if stop is not None:
            stop()


def one_run(target: Target, seed: int, number: int, exact: bool) -> tuple[Play, list[Problem]]:
    """Run `number` of a seed, with the cache closed after it; its events stop where the first problem shows."""
    swarm = Swarm(Random(f"{seed}.{number}"))
    run = start(target, swarm, exact)
    with run:
        for _ in range(STEPS):
            problems = run.happen(swarm.event(run.seen))
            if problems:
                return run, problems
        return run, run.rest()


def start(target: Target, swarm: Swarm, exact: bool) -> Play:
    """A run in the swarm's world, or in the next plainer one that the target can have.

    Raises UnsupportedError where it can have none, BuildError where building a cache raises anything else.
    """
    for world in (swarm.world, *plainer(swarm.world)):
        try:
            run = Play(target, world, exact=exact)
        except UnsupportedError as error:
            refused = error
        except Exception as error:  # what was found before must not be lost with it
            raise BuildError(world, error) from error
        else:
            swarm.world = world
            return run
    raise refused


def shrink_failure(target: Target, failure: Failure, *, exact: bool, tries: int = 400) -> Failure:
    """The failure with few events in a plain world that still breaks the invariant; itself if it does not repeat."""
    invariant = failure.problem.invariant

    def again(world: World, events: Sequence[Event]) -> Failure | None:
        try:
            run, problems = play(target, world, events, exact=exact)
        except Exception:  # a cache that cannot be built shows nothing
            return None
        problem = next((each for each in problems if each.invariant == invariant), None)
        return None if problem is None else failure_of(run, problem, failure.run)

    def smaller(world: World, events: Sequence[Event], tries: int) -> list[Event]:
        return shrink(events, lambda some: again(world, some) is not None, tries=tries, simpler=_simpler)

    if again(failure.world, failure.events) is None:
        return failure
    events = smaller(failure.world, failure.events, tries)
    world = _smallest(failure.world, events, lambda world: again(world, events) is not None)
    return again(world, smaller(world, events, tries // 4)) or failure


def failure_of(run: Play, problem: Problem, number: int) -> Failure:
    """What is kept of a run that broke something."""
    return Failure(number, run.world, run.own_events, problem, run.rest_events)


def _simpler(event: Event) -> list[Event]:
    """The event with less said: no reason, no amount, fewer passes."""
    forms = []
    if event.facts.keys() - {"q", "by"}:
        forms.append(
            replace(event, facts={name: event.facts[name] for name in ("q", "by") if name in event.facts})
        )
    if event.amount is not None and event.amount > 1 and event.name != "settle":
        forms.append(replace(event, amount=1))
    return forms


def _smallest(world: World, events: Sequence[Event], fails: Callable[[World], bool]) -> World:
    """The world without what the failure does not need, one thing at a time."""
    named = {subject for event in events for subject in event.subjects}
    used = {rid: prompt for rid, prompt in world.prompts.items() if rid in named}
    candidates: list[dict[str, Any]] = [
        {"prompts": used or world.prompts},
        {"layout": "dense", "storage": as_dense(world).storage},
        {"policy": "wait_complete"},
        {"mode": "buffer_only"},
        {"storage": frozenset()},
        {"device": frozenset()},
        {"threshold": 1},
        {"interval": 2},
        {"max_attempts": 2},
    ]
    for change in candidates:
        candidate = replace(world, **change)
        if candidate != world and fails(candidate):
            world = candidate
    return world


def _rounds(
    target: Target, seed: int, jobs: int, backend: str, exact: bool, ends: float
) -> Iterator[Sequence[Batch]]:
    """Reports of all workers, round after round, until the time is up."""
    number = 0
    while (left := ends - time.monotonic()) > 0:
        shares = [range(number + job * BATCH, number + (job + 1) * BATCH) for job in range(jobs)]
        spread = jobs > 1 or bool(backend)
        limit = min(left, SLOW_ROUND_S if spread and hasattr(target, "stop") else ROUND_S)
        number += jobs * BATCH
        if spread:
            yield _spread(target, seed, shares, limit, exact, jobs, backend)
        else:
            yield [run_batch(target, seed, shares[0], limit, exact)]


def _spread(
    target: Target, seed: int, shares: Sequence[range], limit: float, exact: bool, jobs: int, backend: str
) -> list[Batch]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(**({"backend": backend} if backend else {}), n_jobs=jobs):
        batches: list[Batch] = Parallel()(
            delayed(run_share)(target, seed, share, limit, exact) for share in shares
        )
    return batches


def _take(campaign: Campaign, target: Target, batch: Batch, exact: bool, deadline: float) -> None:
    """Count a report in, and shrink what is new in it."""
    campaign.coverage.add(batch.coverage)
    campaign.steps += batch.steps
    campaign.interrupted |= batch.interrupted
    for failure in batch.failures:
        raw = failure.cluster
        known = campaign.runs_of.get(raw, 0)
        campaign.runs_of[raw] = known + 1
        if known:
            continue
        small = (
            failure
            if campaign.interrupted or not failure.events
            else shrink_failure(target, failure, exact=exact)
        )
        before = campaign.findings.get(small.cluster)
        if before is None or len(small.events) < len(before.events):
            campaign.findings[small.cluster] = small
