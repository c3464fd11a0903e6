"""Ways to corrupt one event of a log: each a function of the lines and the place; None where it does not apply."""

import json
from collections.abc import Callable, Mapping
from typing import Any

Lines = list[dict[str, Any]]
Corruption = Callable[[Lines, int], Lines | None]


def _is_prefetch(line: Mapping[str, Any]) -> bool:
    return line.get("machine") == "prefetch"


def _changed(lines: Lines, place: int, **members: Any) -> Lines:
    return [*lines[:place], {**lines[place], **members}, *lines[place + 1 :]]


def another_event(lines: Lines, place: int) -> Lines | None:
    """The event becomes one that the state does not allow."""
    swap = {
        "issue": "done",
        "hit": "admit",
        "miss": "unpark",
        "done": "miss",
        "sweep": "hit",
        "enqueue": "finish",
    }
    event = lines[place].get("event")
    return _changed(lines, place, event=swap[event]) if _is_prefetch(lines[place]) and event in swap else None


def another_request(lines: Lines, place: int) -> Lines | None:
    """The event is blamed on a request that was never queued."""
    return _changed(lines, place, rid="nobody") if _is_prefetch(lines[place]) else None


def another_attempt(lines: Lines, place: int) -> Lines | None:
    """The event is blamed on the next attempt of the same id (#39318)."""
    if not _is_prefetch(lines[place]):
        return None
    return _changed(lines, place, attempt=lines[place]["attempt"] + 1)


def an_earlier_pass(lines: Lines, place: int) -> Lines | None:
    """Time runs backwards."""
    return _changed(lines, place, **{"pass": 0}) if lines[place - 1].get("pass", 0) > 0 else None


def a_later_pass(lines: Lines, place: int) -> Lines | None:
    """One event claims a pass that has not begun."""
    return (
        _changed(lines, place, **{"pass": lines[place]["pass"] + 1000})
        if "pass" in lines[place + 1]
        else None
    )


def a_flipped_fact(lines: Lines, place: int) -> Lines | None:
    """A question that went out is said not to have been asked."""
    facts = lines[place].get("facts", {})
    if "asks" not in facts or lines[place].get("event") not in ("issue", "sweep") or "op" not in lines[place]:
        return None
    return _changed(lines, place, facts={**facts, "asks": False})


def another_operation(lines: Lines, place: int) -> Lines | None:
    """A completion names an operation that is not its attempt's."""
    if lines[place].get("event") not in ("hit", "miss", "done"):
        return None
    return _changed(lines, place, op=lines[place]["op"] + 1)


def a_marker_that_is_not_there(lines: Lines, place: int) -> Lines | None:
    """The engine is said to be armed where it is not, or the reverse."""
    seen = lines[place].get("seen")
    return (
        _changed(lines, place, seen={**seen, "armed": not seen["armed"]})
        if seen and "armed" in seen
        else None
    )


def pins_that_do_not_add_up(lines: Lines, place: int) -> Lines | None:
    """The engine's count of pinned tokens is off."""
    seen = lines[place].get("seen")
    if not seen or "pinned_tokens" not in seen:
        return None
    return _changed(lines, place, seen={**seen, "pinned_tokens": seen["pinned_tokens"] + 16})


def a_spent_budget(lines: Lines, place: int) -> Lines | None:
    """The engine is said to have charged a re-issue more."""
    seen = lines[place].get("seen")
    return (
        _changed(lines, place, seen={**seen, "spent": seen["spent"] + 1})
        if seen and "spent" in seen
        else None
    )


def a_lost_line(lines: Lines, place: int) -> Lines | None:
    """The line is gone and the rest renumbered: only the machines can tell."""
    line = lines[place]
    asking = line.get("event") == "sweep" and "op" in line
    if not asking and line.get("event") not in ("enqueue", "issue", "hit", "miss", "done", "admit"):
        return None
    return _renumbered([*lines[:place], *lines[place + 1 :]])


def a_repeated_line(lines: Lines, place: int) -> Lines | None:
    """The line stands twice and the rest is renumbered."""
    if lines[place].get("event") not in ("enqueue", "issue", "hit", "miss", "done", "admit"):
        return None
    return _renumbered([*lines[: place + 1], *lines[place:]])


def a_pin_too_many(lines: Lines, place: int) -> Lines | None:
    """A pin that was taken takes more than the cap."""
    if lines[place].get("machine") != "pin" or lines[place].get("why") != "locked":
        return None
    return _changed(lines, place, tokens=lines[place]["tokens"] + 100_000)


KINDS: tuple[Corruption, ...] = (
    another_event,
    another_request,
    another_attempt,
    an_earlier_pass,
    a_later_pass,
    a_flipped_fact,
    another_operation,
    a_marker_that_is_not_there,
    pins_that_do_not_add_up,
    a_spent_budget,
    a_lost_line,
    a_repeated_line,
    a_pin_too_many,
)


def _renumbered(lines: Lines) -> Lines:
    return [{**line, "seq": number} for number, line in enumerate(lines)]


def dump(lines: Lines) -> str:
    """The lines as a log file's text."""
    return "".join(json.dumps(line) + "\n" for line in lines)
