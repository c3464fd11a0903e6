"""Hypothesis' rule-based machine over a cache under test, and what its runs must have reached."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar, Final

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from hicache_fsm.spec import load_spec
from hicache_fsm.suite.campaign import Failure, failure_of, shrink_failure, start
from hicache_fsm.suite.coverage import Coverage
from hicache_fsm.suite.findings import write_finding
from hicache_fsm.suite.play import Play
from hicache_fsm.suite.protocol import Target
from hicache_fsm.suite.swarm import Swarm

EXAMPLES: Final = 200
STEPS: Final = 80

SEEDS: Final = st.binary(min_size=8, max_size=8).map(lambda drawn: int.from_bytes(drawn))
"""What Hypothesis draws: a run's world, and each event with the number of events before it, come from such a number.

From bytes, as it would mix integers with constants of whichever modules are loaded: each process had runs of its own.
"""


class BrokenError(AssertionError):
    """A run broke something; the whole failure is in `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure.problem))
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Floor:
    """How often, at the least, all runs together must have reached each state and taken each exit.

    `changes` counts the state changes of spec/prefetch.toml that must have been seen.
    """

    states: Mapping[str, int] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)
    changes: int = 0

    def missed(self, coverage: Coverage) -> list[str]:
        """What stayed below it, in words."""
        below = [
            f"{name} {seen[name]} times, not {least}"
            for seen, leasts in ((coverage.states, self.states), (coverage.exits, self.exits))
            for name, least in leasts.items()
            if seen[name] < least
        ]
        table = load_spec().machines["prefetch"]
        reached = len(coverage.reached(table))
        if reached < self.changes:
            missing = ", ".join(" -> ".join(move) for move in coverage.missing(table))
            below.append(f"{reached} changes of state, not {self.changes}; missing: {missing}")
        return below


def run_stateful(
    target: Target,
    *,
    exact: bool = False,
    examples: int = EXAMPLES,
    steps: int = STEPS,
    floor: Floor | None = None,
    out: Path | None = None,
) -> Coverage:
    """Run the machine, the same way each time.  Returns what was reached.

    `exact` holds the target to the reference model's word.  Raises AssertionError if a run breaks something, with the
    smallest sequence as a scenario, which `out` gets as a file; and if what was reached stays below `floor`.
    """
    machine = _machine(target, exact)
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                derandomize=True,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                # Our own shrinker knows events; Hypothesis' would shrink the choices behind them.
                phases=(Phase.explicit, Phase.reuse, Phase.generate),
                print_blob=False,
                report_multiple_bugs=False,
            ),
        )
    except BrokenError as broken:
        small = shrink_failure(target, broken.failure, exact=exact)
        raise AssertionError(_report(small, target, out)) from None
    below = floor.missed(machine.coverage) if floor else []
    if below:
        raise AssertionError(f"the random runs reached too little: {'; '.join(below)}")
    return machine.coverage


def _report(failure: Failure, target: Target, out: Path | None) -> str:
    path, text = write_finding(failure, target.name, out)
    again = f"hicache-fsm scenarios {path} --target {target.name}" if path else "the scenario below"
    return f"{failure.problem}\nreproduce: {again}\n\n{text}"


def _machine(target: Target, exact: bool) -> type["Lives"]:
    """The machine for one target, with counts of its own."""
    return type("LivesOfOne", (Lives,), {"target": target, "exact": exact, "coverage": Coverage()})


class Lives(RuleBasedStateMachine):
    """One rule draws from all of the swarm's: Hypothesis picks its rules evenly, and a run needs many answers for each
    exit.
    """

    target: ClassVar[Target]
    exact: ClassVar[bool] = False
    coverage: ClassVar[Coverage] = Coverage()

    run: Play | None = None

    @initialize(seed=SEEDS)
    def build(self, seed: int) -> None:
        """A world, and a fresh cache in it."""
        self.seed = seed
        self.swarm = Swarm(Random(seed))
        self.run = start(self.target, self.swarm, self.exact)

    @rule(seed=SEEDS)
    def live(self, seed: int) -> None:
        """One event that makes sense where the cache is."""
        assert self.run is not None
        self.swarm.random = Random(f"{self.seed}.{len(self.run.events)}.{seed}")
        problems = self.run.happen(self.swarm.event(self.run.seen))
        if problems:
            self.run.broken = True
            raise BrokenError(failure_of(self.run, problems[0], 0))

    def teardown(self) -> None:
        """Bring the cache to rest, unless the run has failed already."""
        if self.run is None:
            return
        run, self.run = self.run, None
        with run:
            problems = run.rest() if not run.broken else []
            type(self).coverage.add(run.coverage)
            if problems:
                raise BrokenError(failure_of(run, problems[0], 0))
