"""tla/manifest.json: every model with the verdict that is expected of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from hicache_fsm.tlc.errors import TlcError
from hicache_fsm.tlc.run import Job, Outcome, Verdict

FILE: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One model; what is None is not compared.

    `violates` is the property that fails, `depth` and `counterexample` count steps, `upstream` are the reports
    that a toggle stands for.
    """

    module: str
    cfg: str
    system: str
    configuration: str | None
    result: Verdict
    violates: str | None
    distinct: int | None
    depth: int | None
    counterexample: int | None
    upstream: tuple[str, ...]
    size: str

    @property
    def name(self) -> str:
        """The cfg without its suffix."""
        return self.cfg.removesuffix(".cfg")

    def job(self, folder: Path, **more: Any) -> Job:
        """What to run; `more` are fields of the job."""
        return Job(folder, self.module, self.cfg, checks_deadlock=self.result == "deadlock failure", **more)


def load_manifest(folder: Path) -> dict[str, Entry]:
    """Every model by its name.  Raises TlcError for a missing or malformed manifest."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        entries = [_entry(each) for each in (data["models"] if isinstance(data, dict) else data)]
    except OSError as error:
        raise TlcError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TlcError(f"{path}: malformed: {type(error).__name__} {error}") from error
    return {entry.name: entry for entry in entries}


def mismatches(entry: Entry, outcome: Outcome) -> list[str]:
    """What TLC found other than the manifest says; empty if nothing."""
    found: dict[str, object] = {
        "result": outcome.verdict,
        "property": outcome.property,
        "distinct": outcome.distinct,
        "depth": outcome.depth,
        "counterexample": len(outcome.behaviour),
    }
    expected: dict[str, object] = {
        "result": entry.result,
        "property": entry.violates,
        "distinct": entry.distinct,
        "depth": entry.depth,
        "counterexample": entry.counterexample,
    }
    if entry.result != "success":
        # Where a search stops at a violation, what it had found by then depends on its order.
        del expected["distinct"], expected["depth"]
    else:
        del expected["property"], expected["counterexample"]
    if not outcome.property:
        expected.pop("property", None)
    return [
        f"{name} is {found[name]}, expected {value}"
        for name, value in expected.items()
        if value is not None and found[name] != value
    ]


def _entry(data: Mapping[str, Any]) -> Entry:
    result = data["result"]
    if result not in get_args(Verdict):
        raise ValueError(f'{data["cfg"]}: unknown result "{result}"')
    return Entry(
        str(data["module"]).removesuffix(".tla"),
        str(data["cfg"]),
        str(data.get("system", "")),
        data.get("configuration"),
        result,
        data.get("property"),
        data.get("distinct"),
        data.get("depth"),
        data.get("counterexample"),
        tuple(data.get("upstream", ())),
        str(data["runtime"]),
    )
