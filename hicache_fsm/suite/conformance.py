"""The suite as a test class: name a target, and pytest runs every scenario and random runs against it."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

if TYPE_CHECKING:
    from hicache_fsm.suite.protocol import Target
    from hicache_fsm.suite.stateful import Floor

OTHER_WAY = ("expect", "refused", "absent", "happened", "progress")
"""Verdicts of a scenario in which no invariant broke: the cache decided something else than the scenario tells."""


class Conformance:
    """Subclass it under a name that pytest collects, and give `target` or run with --hicache-target.

    `exact` holds the cache to the rules of the profile `recommended`: a scenario must go its way, and random runs must
    do what the reference model foretells.  Without it the invariants must hold, and a scenario that the cache takes
    another way is skipped with the step and the reason.  `examples` random runs of `steps` events each must reach
    `floor`, if there is one.  `scenarios` is a folder of others than the shipped ones.
    """

    target: "ClassVar[Target | None]" = None
    exact: ClassVar[bool] = False
    examples: ClassVar[int] = 100
    steps: ClassVar[int] = 60
    floor: "ClassVar[Floor | None]" = None
    scenarios: ClassVar[Path | None] = None

    def test_scenario(self, hicache_subject: "Target", hicache_scenario: Path) -> None:
        """The scenario ends as it tells, or breaks no invariant on its way."""
        from hicache_fsm.suite.runner import run
        from hicache_fsm.suite.scenario import load

        verdict = run(hicache_subject, load(hicache_scenario)).verdict
        if verdict.outcome == "inexpressible":
            pytest.skip(f"{hicache_subject.name} cannot express it: {verdict.why}")
        if verdict.outcome == "fail" and verdict.what in OTHER_WAY and not self.exact:
            why = verdict.why or verdict.what
            pytest.skip(f"{hicache_subject.name} goes another way at step {verdict.step}: {why}")
        if verdict.outcome == "fail":
            pytest.fail(f"{hicache_scenario}: {verdict}: {verdict.why}", pytrace=False)

    def test_random_runs_keep_every_invariant(self, hicache_subject: "Target", tmp_path: Path) -> None:
        """Nothing breaks in random runs, everything ends when storage answers, and the runs reach the floor."""
        try:
            from hicache_fsm.suite.stateful import run_stateful
        except ModuleNotFoundError as error:
            pytest.fail(f"{error.name} is not installed: pip install 'hicache-fsm[fuzz]'", pytrace=False)
        try:
            run_stateful(
                hicache_subject,
                exact=self.exact,
                examples=self.examples,
                steps=self.steps,
                floor=self.floor,
                out=tmp_path,
            )
        except AssertionError as error:
            pytest.fail(str(error), pytrace=False)

    def test_the_same_events_lead_to_the_same_states(self, hicache_subject: "Target") -> None:
        """A run repeats: nothing in the cache depends on time, threads or hash seeds, so a finding can be replayed."""
        from hicache_fsm.suite.campaign import one_run
        from hicache_fsm.suite.play import play

        for number in range(3):
            first, _ = one_run(hicache_subject, 0, number, self.exact)
            again, _ = play(hicache_subject, first.world, first.own_events, exact=self.exact)
            assert again.seen == first.seen
