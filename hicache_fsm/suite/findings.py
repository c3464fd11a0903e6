"""A failure as a scenario file that shows it again."""

import re
from dataclasses import replace
from pathlib import Path

from hicache_fsm.suite.campaign import Failure
from hicache_fsm.suite.scenario import Scenario, Step, dumps


def scenario_of(failure: Failure, target: str, name: str = "") -> Scenario:
    """The failure's events, judged by every invariant; where the reference model foretold something else, the last step
    expects what it foretold.
    """
    events = (*failure.events, *failure.rest)
    about = f"{failure.problem.message} (found on {target})"
    scenario = Scenario.of(name or name_of(failure), about, failure.world, events)
    if not failure.problem.expect:
        return scenario
    text = f"expect {failure.problem.expect}"
    return replace(scenario, steps=(*scenario.steps, Step(len(events) + 1, text, "expect")))


def name_of(failure: Failure) -> str:
    """A file's name for it: the invariant and the exit."""
    words = " ".join(("found", *failure.cluster)).replace(" -", "")
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def write_finding(failure: Failure, target: str, folder: Path | None) -> tuple[Path | None, str]:
    """The scenario's text, and the file it was written to if there is a folder for it.  Raises OSError."""
    text = dumps(scenario_of(failure, target))
    if folder is None:
        return None, text
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name_of(failure)}.toml"
    path.write_text(text, encoding="utf-8")
    return path, text
