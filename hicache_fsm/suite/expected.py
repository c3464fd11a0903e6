"""The outcomes that are expected: each scenario's on each target, under each profile where the target has them.

A file of them lies beside the scenarios, so that a new failure shows, and so does a mended one.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from hicache_fsm.suite.runner import ScenarioRun

FILE: Final = "expected.toml"

HEADER: Final = """\
# What each scenario comes to: by profile on the runtime and on the model, by version on the real SGLang.
# `pass`; `fail at step N: WHAT`, an invariant or what the step asked for; `inexpressible`, at step N or the world's.
# Written by `hicache-fsm scenarios --target TARGET --profile PROFILE --record`; the tests compare all of it.
# `differs`, by hand: why the runtime comes out otherwise under a profile than the release that the profile stands for.
"""

DIFFERS: Final = "differs"
"""In the place of a target: not an outcome, but why the runtime's is not the real engine's, by profile."""

Outcomes = dict[str, dict[str, str]]
"""By scenario, then by key."""


class ExpectedError(ValueError):
    """The file is no table of outcomes; one line."""


def key(target: str, profile: str) -> str:
    """What a column is called: `runtime/recommended`, or `sglang/0.5.23`, as a real SGLang has its own rules."""
    return target.replace("-", "/", 1) if target.startswith("sglang-") else f"{target}/{profile}"


def load_expected(path: Path) -> Outcomes:
    """The outcomes in a file, none if there is no such file.  Raises ExpectedError."""
    if not path.exists():
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return {
            scenario: {
                f"{target}/{rules}": str(outcome)
                for target, by_rules in columns.items()
                for rules, outcome in by_rules.items()
            }
            for scenario, columns in table.items()
        }
    except (tomllib.TOMLDecodeError, AttributeError) as error:
        raise ExpectedError(f"{path}: no table of outcomes: {error}") from error


def dump_expected(outcomes: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a file, scenarios in alphabetical order."""
    lines = [HEADER]
    for scenario, columns in sorted(outcomes.items()):
        lines.append(f"[{scenario}]")
        for target in dict.fromkeys(column.partition("/")[0] for column in sorted(columns)):
            cells = (
                f'{_quoted(column.partition("/")[2])} = "{outcome}"'
                for column, outcome in sorted(columns.items())
                if column.partition("/")[0] == target
            )
            lines.append(f"{target} = {{ {', '.join(cells)} }}")
        lines.append("")
    return "\n".join(lines)


def record(path: Path, column: str, runs: Iterable[ScenarioRun]) -> None:
    """Put the outcomes of these runs into the file, in place of that column's for the same scenarios."""
    outcomes = load_expected(path)
    for run in runs:
        outcomes.setdefault(run.scenario.id, {})[column] = str(run.verdict)
    path.write_text(dump_expected(outcomes), encoding="utf-8")


def surprises(expected: Outcomes, column: str, runs: Iterable[ScenarioRun]) -> list[str]:
    """One line for each run that came out other than expected, or that is not listed."""
    told = []
    for run in runs:
        wanted = expected.get(run.scenario.id, {}).get(column, "nothing: it is not listed")
        if wanted != str(run.verdict):
            told.append(f"{run.scenario.id} on {column}: {run.verdict}, expected {wanted}")
    return told


def _quoted(rule: str) -> str:
    return f'"{rule}"' if "." in rule else rule
