"""Runs the models of the manifest, two at a time, and holds what TLC finds against it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hicache_fsm.tlc.errors import TlcError
from hicache_fsm.tlc.locate import Tools
from hicache_fsm.tlc.manifest import Entry, mismatches
from hicache_fsm.tlc.run import Outcome, run

AT_ONCE: Final = 2


@dataclass(frozen=True, slots=True)
class Result:
    """One model: what TLC found and how it differs from the manifest, or why there is no verdict."""

    entry: Entry
    outcome: Outcome | None
    problems: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        """Whether the manifest is right."""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """The result as plain values."""
        found: dict[str, Any] = {
            "model": self.entry.name,
            "expected": self.entry.result,
            "problems": list(self.problems),
        }
        if self.outcome is not None:
            trace = self.outcome.trace()
            found |= {
                "result": self.outcome.verdict,
                "property": self.outcome.property,
                "distinct": self.outcome.distinct,
                "generated": self.outcome.generated,
                "depth": self.outcome.depth,
                "seconds": self.outcome.seconds,
                "counterexample": [list(row) for row in trace.rows()] if trace is not None else None,
            }
        return found


def run_all(
    tools: Tools,
    folder: Path,
    entries: Sequence[Entry],
    tell: Callable[[str], None] = lambda _: None,
    *,
    at_once: int = AT_ONCE,
    limit_s: float = 0,
) -> Iterator[Result]:
    """The results as they come, the largest models started first; a model without a verdict stops no other."""
    order = sorted(entries, key=lambda entry: ("large", "medium", "small").index(entry.size))

    def check(entry: Entry) -> Result:
        try:
            outcome = run(
                tools, entry.job(folder, limit_s=limit_s), lambda text: tell(f"{entry.name}: {text}")
            )
        except TlcError as error:
            return Result(entry, None, (str(error),))
        return Result(entry, outcome, tuple(mismatches(entry, outcome)))

    with ThreadPoolExecutor(at_once) as pool:
        futures = [pool.submit(check, entry) for entry in order]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                tell(f"{done} of {len(futures)} models done")
                yield future.result()
        finally:
            for future in futures:
                future.cancel()
