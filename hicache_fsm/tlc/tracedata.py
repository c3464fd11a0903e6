"""Event logs and the prefetch table as the TLA+ module TraceData."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hicache_fsm.runtime import Line
from hicache_fsm.spec import Constants, Machine, Spec

MODULE = "TraceData"

SEEN = ("entry", "armed", "spent", "parked", "hold", "pinned_tokens")
"""What the writer saw, as far as TraceBatch looks at it."""

CONSTANTS = (
    "interval", "max_attempts", "dense", "marks_when_disabled", "arms_too_short", "arms_limited", "arms_cut",
    "spends_unasked", "parks", "parks_pinned", "retries_failed", "immediate_known_hit", "requeries_tail",
    "requeries_lost_match", "leaky_door", "scope", "resets_budget",
)  # fmt: skip
"""The constants of a profile that TraceBatch reads."""

Record = Mapping[str, object]


class Log:
    """One log's lines, header first, as TraceBatch wants them; `lines` are the numbers of the events' lines.

    Raises KeyError if the header names an unknown profile.
    """

    def __init__(self, spec: Spec, header: Line, lines: Iterator[Line]) -> None:
        self.lines: list[int] = []
        self.events: list[Record] = []
        self._rids: dict[str, int] = {}
        self._attempts: dict[tuple[str, int], int] = {}
        self._pools: dict[str, None] = {}
        self._header = header
        self._profile = spec.profiles[str(header.data["profile"])]
        self._constants = replace(self._profile.constants, **dict(header.data.get("constants", {})))
        for line in lines:
            self.lines.append(line.number)
            self.events.append(self._event(line))

    def record(self) -> Record:
        """The log as one record."""
        header = self._header.data
        cap = header.get("pin_cap_tokens")
        return {
            **_chosen(self._constants),
            "findings": {finding.invariant for finding in self._profile.findings},
            "buffer": header.get("mode", "buffer_only") == "buffer_only",
            "threshold": int(header.get("threshold_tokens", 1)),
            "cap": -1 if cap is None else int(cap),
            "attempts": len(self._attempts),
            "numbers": [number for _, number in self._attempts],
            "rids": len(self._rids),
            "pools": set(self._pools),
            "events": self.events,
        }

    def _event(self, line: Line) -> Record:
        if line.kind == "trailer":
            return self._trailer(line)
        about = line.machine in ("prefetch", "operation", "pin")
        rid = self._rids.setdefault(line.rid, len(self._rids) + 1) if about else 0
        key = line.rid, line.attempt
        if line.machine == "prefetch" and line.event == "enqueue":
            self._attempts.setdefault(key, len(self._attempts) + 1)
        pool = str(line.data.get("pool", ""))
        if line.machine == "belief":
            self._pools[pool] = None
        return {
            "machine": line.machine,
            "event": line.event,
            "pass": line.pass_,
            "rid": rid,
            "who": self._attempts.get(key, 0) if about else 0,
            "op": line.op,
            "tokens": line.tokens,
            "wanted": int(line.data.get("wanted_tokens", line.tokens)),
            "why": line.why,
            "again": str(line.data.get("again", "")),
            "yes": {name for name, holds in line.facts.items() if holds},
            "no": {name for name, holds in line.facts.items() if not holds},
            "seen": {name: line.seen[name] for name in SEEN if name in line.seen},
            "pool": pool,
            "pages": line.pages,
            "keep": int(line.data.get("keep_pages", 0)),
        }

    def _trailer(self, line: Line) -> Record:
        """A trailer of an engine that was not idle claims nothing."""
        idle = bool(line.data.get("idle"))
        left = {name for name, count in dict(line.data.get("residue", {})).items() if count}
        return {"machine": "trailer" if idle else "none", "event": "", "pass": line.pass_, "residue": left}


def module(machine: Machine, logs: Sequence[Log]) -> str:
    """The text of TraceData."""
    rows = ",\n    ".join(value(_row(row)) for row in machine.transitions)
    told = ",\n    ".join(value(log.record()) for log in logs)
    return "\n".join(
        [
            f"---- MODULE {MODULE} ----",
            "(* Generated from spec/prefetch.toml and event logs: do not edit. *)",
            "EXTENDS Integers",
            "Rows == {",
            f"    {rows}}}",
            "Logs == <<",
            f"    {told}>>",
            "====",
            "",
        ]
    )


def value(data: object) -> str:
    """A value as TLA+ spells it."""
    match data:
        case bool():
            return str(data).upper()
        case int():
            return str(data)
        case str():
            return '"' + re.sub(r"[^\w .#:-]", "_", data, flags=re.ASCII) + '"'
        case set():
            return "{" + ", ".join(sorted(map(value, data))) + "}"
        case list() | tuple():
            # TLC's parser takes time quadratic in the length of a line.
            return "<<" + ",\n".join(map(value, data)) + ">>"
        case dict():
            return (
                "[" + ", ".join(f"{name} |-> {value(each)}" for name, each in data.items()) + "]"
                if data
                else "<<>>"
            )
    raise TypeError(f"no TLA+ value: {data!r}")


def _chosen(constants: Constants) -> dict[str, Any]:
    return {name: chosen for name, chosen in asdict(constants).items() if name in CONSTANTS}


def _row(row: Any) -> Record:
    return {
        "event": row.event,
        "source": row.source,
        "dest": row.dest,
        "yes": {literal.guard for literal in row.guard if literal.positive},
        "no": {literal.guard for literal in row.guard if not literal.positive},
        "effects": set(row.effects),
    }
