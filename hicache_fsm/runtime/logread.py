"""Reads an event log (docs/event-log.md, schema 1), line by line and strictly."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Final

from hicache_fsm.spec import Spec, load_spec

SCHEMA: Final = 1
CUT_OFF: Final = b"{"  # stands for the part of a line that a cut-off archive lost
CUT: Final = "truncated: the last line is not whole"
CUT_MEND: Final = "--allow-truncated takes the lines before it"
TAIL: Final = "a flight recorder's tail: what came before it is lost"
TAIL_MEND: Final = "`replay --allow-truncated` judges the attempts that begin in it"
EXTRA_EVENTS: Final = {
    "prefetch": frozenset({"enqueue", "retract", "finish"}),
    "operation": frozenset({"stale"}),
}


class LogError(Exception):
    """A log that cannot be judged: where, why, and the mend.  `line` counts from 1, 0 is the file."""

    def __init__(self, path: Path, line: int, reason: str, mend: str) -> None:
        super().__init__(path, line, reason, mend)
        self.path = path
        self.line = line
        self.reason = reason
        self.mend = mend

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{where}: {self.reason}; {self.mend}"


class TruncatedLog(LogError):  # noqa: N818 - says what the log is
    """The last line is not whole, as after a crash: the lines before it can be judged."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: the fields that most events have, and all of them in `data`.

    `number` counts lines from 1; `kind` is header, trailer or event; `op` is 0 where none is concerned;
    `tokens` and `pages` are 0 where the line does not say.
    """

    number: int
    seq: int
    kind: str
    pass_: int
    machine: str
    event: str
    rid: str
    attempt: int
    op: int
    why: str
    tokens: int
    pages: int
    facts: Mapping[str, bool]
    seen: Mapping[str, Any]
    data: Mapping[str, Any]


def read_log(
    path: Path, *, allow_truncated: bool = False, allow_tail: bool = False, spec: Spec | None = None
) -> Iterator[Line]:
    """The lines of a log, header first; memory stays constant however long it is.

    Machines and events are those of `spec` (None: this package's own). Raises LogError for a file that cannot
    be read, is binary, has no header or another schema, breaks the numbering, names unknown machines or
    events, or has a line that is not a JSON object of the right shape; TruncatedLog if only the last line is
    not whole, unless `allow_truncated` drops that line. A log without its beginning, whose header says so, is
    refused too unless `allow_tail`: who reads it must expect attempts that it never saw begin.
    """
    events = _known_events(load_spec() if spec is None else spec)
    ended = number = 0
    raws = _raw_lines(path)
    raw = next(raws, b"")
    if not raw:
        raise LogError(path, 0, "the file is empty", "record it again, the header was never written")
    while raw:
        number += 1
        following = next(raws, b"")
        if ended:
            raise LogError(
                path, number, f"follows the trailer in line {ended}", "split the file after the trailer"
            )
        try:
            line = _parse(path, number, raw, last=not following, events=events)
        except TruncatedLog:
            if allow_truncated and number > 1:
                return
            raise
        if number == 1 and line.data.get("tail") and not allow_tail:
            raise LogError(path, 1, TAIL, TAIL_MEND)
        ended = number if line.kind == "trailer" else 0
        yield line
        raw = following


def _raw_lines(path: Path) -> Iterator[bytes]:
    """The file's lines as bytes; a name ending in .gz is unpacked, and ends where its data do."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from file
    except EOFError:
        yield CUT_OFF
    except (OSError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise LogError(path, 0, f"cannot be read: {reason}", "name a readable file") from error


def _known_events(spec: Spec) -> Mapping[str, frozenset[str]]:
    return {
        name: frozenset(machine.events) | EXTRA_EVENTS.get(name, frozenset())
        for name, machine in spec.machines.items()
    }


def _parse(path: Path, number: int, raw: bytes, *, last: bool, events: Mapping[str, frozenset[str]]) -> Line:
    if b"\0" in raw or (number == 1 and not raw.lstrip().startswith(b"{")):
        raise LogError(path, number, "not an event log: binary or foreign data", "name a file of JSON lines")
    if last and not raw.endswith(b"\n"):
        raise TruncatedLog(path, number, CUT, CUT_MEND)
    try:
        data = json.loads(raw)
    except UnicodeDecodeError as error:
        raise LogError(path, number, "not UTF-8 text", "name a file of JSON lines") from error
    except (ValueError, RecursionError) as error:
        if last and number > 1:
            raise TruncatedLog(path, number, CUT, CUT_MEND) from error
        raise LogError(path, number, f"not JSON: {error}", "each line is one JSON object") from error
    if not isinstance(data, dict):
        raise LogError(path, number, "not a JSON object", "each line is one JSON object")
    seq = data.get("seq")
    if type(seq) is not int:
        raise LogError(path, number, "no whole number seq", "number every line from 0")
    if seq != number - 1:
        mend = "a line is missing, repeated or out of order: record it again"
        raise LogError(path, number, f"seq is {seq}, expected {number - 1}", mend)
    kind = str(data.get("kind", "event"))
    if number == 1:
        _check_header(path, data, kind)
    elif kind not in ("event", "trailer"):
        raise LogError(
            path, number, f'kind "{kind}" after the first line', "one log has one header: split the file"
        )
    elif kind == "event":
        _check_event(path, number, data, events)
    return _line(path, number, kind, data)


def _check_header(path: Path, data: Mapping[str, Any], kind: str) -> None:
    if kind != "header":
        raise LogError(path, 1, "the header is missing", "the log's beginning was cut off: record it again")
    if data.get("schema") != SCHEMA:
        reason = f"schema {data.get('schema')!r}, this reader knows {SCHEMA}"
        raise LogError(path, 1, reason, "read it with the version that wrote it")
    if not isinstance(data.get("profile"), str):
        raise LogError(path, 1, "the header names no profile", "write the profile's name into the header")


def _check_event(
    path: Path, number: int, data: Mapping[str, Any], events: Mapping[str, frozenset[str]]
) -> None:
    machine, event = str(data.get("machine")), str(data.get("event"))
    if machine not in events:
        raise LogError(path, number, f'unknown machine "{machine}"', f"known: {', '.join(sorted(events))}")
    if event not in events[machine]:
        known = ", ".join(sorted(events[machine]))
        raise LogError(path, number, f'unknown event "{event}" of {machine}', f"known: {known}")


_SHAPE: Final[Mapping[str, tuple[type, Any]]] = {
    "pass": (int, 0),
    "rid": (str, ""),
    "attempt": (int, 0),
    "op": (int, 0),
    "why": (str, ""),
    "tokens": (int, 0),
    "pages": (int, 0),
    "facts": (dict, {}),
    "seen": (dict, {}),
}

_OPTIONAL: Final[Mapping[str, tuple[type, ...]]] = {
    "threshold_tokens": (int,),
    "pin_cap_tokens": (int, NoneType),
    "wanted_tokens": (int,),
    "keep_pages": (int,),
    "residue": (dict,),
}
_SEEN: Final = ("spent", "pinned_tokens", "occupied_tokens")


def _wrong_type(path: Path, number: int, name: str, value: object, wanted: type) -> LogError:
    reason = f"{name} is {value!r}, expected {wanted.__name__}"
    return LogError(path, number, reason, "see docs/event-log.md for the fields")


def _line(path: Path, number: int, kind: str, data: Mapping[str, Any]) -> Line:
    values: dict[str, Any] = {}
    for name, (wanted, default) in _SHAPE.items():
        values[name] = value = data.get(name, default)
        if type(value) is not wanted:
            raise _wrong_type(path, number, name, value, wanted)
    for name, kinds in _OPTIONAL.items():
        if name in data and type(data[name]) not in kinds:
            raise _wrong_type(path, number, name, data[name], kinds[0])
    for name in _SEEN:
        if type(value := values["seen"].get(name, 0)) is not int:
            raise _wrong_type(path, number, f"seen.{name}", value, int)
    if kind == "event" and "pass" not in data:
        raise LogError(path, number, "no pass", "every event names its scheduling pass")
    return Line(
        number=number,
        seq=number - 1,
        kind=kind,
        pass_=values["pass"],
        machine=str(data.get("machine", "")),
        event=str(data.get("event", "")),
        rid=values["rid"],
        attempt=values["attempt"],
        op=values["op"],
        why=values["why"],
        tokens=values["tokens"],
        pages=values["pages"],
        facts=values["facts"],
        seen=values["seen"],
        data=data,
    )
