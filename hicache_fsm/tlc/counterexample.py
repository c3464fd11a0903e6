"""A counterexample as a counterexample file: the model that it is of, and the events to drive a runtime with."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from hicache_fsm.explore import Trace
from hicache_fsm.spec.types import Constant, Constants
from hicache_fsm.tlc.errors import TlcError
from hicache_fsm.tlc.values import parse

INSTANCE: Final = re.compile(r"\b(?:r|k|n|kv|aux)\d+\b")
FOR_EVER: Final = re.compile(r"for ever")
INDEXED: Final = re.compile(r"\[(\d+|[A-Za-z]+\d+)\]")
COMMENT: Final = re.compile(r"\\\*.*")
PROPERTIES: Final = re.compile(r"^\s*PROPERT(?:Y|IES)\b", re.MULTILINE)
PROFILE: Final = re.compile(r"^\\\* Profile: (\S+)\.$", re.MULTILINE)
ASSIGNED: Final = re.compile(r"^\s*(?:CONSTANTS?\s+)?([A-Za-z]\w*)\s*(=|<-)\s*(.+?)\s*$", re.MULTILINE)

DEFINED: Final[Mapping[str, int]] = {"OneEach": 0, "OneMore": 1}
"""What the pins of MCAdmission's requests hold: one page, and so many more for each request after the first."""

CONSTANTS: Final = frozenset(each.name for each in fields(Constants))


@dataclass(frozen=True, slots=True)
class Origin:
    """The model that a counterexample is of.

    `constants` are the profile's as the model has them, `bounds` its sizes by their names in spec/bounds, and
    `toggles` the bugs that it sets.  `of_steps` says that it checks properties of steps or behaviours, not of states.
    """

    system: str
    profile: str = "recommended"
    constants: Mapping[str, Constant] = field(default_factory=dict)
    bounds: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)
    toggles: tuple[str, ...] = ()
    of_steps: bool = False


def origin(system: str, cfg: str) -> Origin:
    """The origin that the text of a cfg tells.  Raises TlcError for a value or a definition that it cannot read."""
    profile = PROFILE.search(cfg)
    bare = COMMENT.sub("", cfg)
    constants: dict[str, Constant] = {}
    bounds: dict[str, int | tuple[int, ...]] = {}
    toggles: list[str] = []
    defined: dict[str, int] = {}
    for name, sign, text in ASSIGNED.findall(bare):
        short = _snake(name).removeprefix("num_")
        if sign == "<-":
            if text not in DEFINED:
                raise TlcError(f"{name} <- {text} has no counterpart in spec/bounds")
            defined[short] = DEFINED[text]
            continue
        value = parse(text)
        if name == "PinPercent" and isinstance(value, int):
            constants["pin_fraction"] = value / 100
        elif short in CONSTANTS and isinstance(value, bool | int | str):
            constants[short] = value
        elif isinstance(value, bool):
            toggles += [name] if value else []
        elif isinstance(value, int):
            bounds[short] = value
        elif isinstance(value, frozenset):
            bounds[short] = len(value)
    requests = bounds.get("requests", 0)
    for short, step in defined.items():
        if isinstance(requests, int):
            bounds[short] = tuple(1 + step * i for i in range(requests))
    chosen = profile[1] if profile is not None else "recommended"
    return Origin(system, chosen, constants, bounds, tuple(toggles), PROPERTIES.search(bare) is not None)


def to_counterexample(trace: Trace, name: str = "", model: Origin | None = None) -> str:
    """TOML with the model, if it is known, and one `[[steps]]` a step: its event, the request, rank, node or page that
    it concerns if any, and what it changes.

    The subject is read off a step's name where it has one (`check`), and off what the step changes otherwise (TLC).
    What a behaviour does for ever is no step: `for_ever` says it.
    """
    lines = [f"counterexample = {_text(name)}"] if name else []
    lines += [f"about = {_text(trace.about)}"]
    lines += [f"for_ever = {_text(step.action)}" for step in trace.steps if FOR_EVER.search(step.action)]
    lines += _model(model) if model is not None else []
    for step in trace.steps:
        if FOR_EVER.search(step.action):
            continue
        lines += ["", "[[steps]]", f"event = {_text(_event(step.action))}"]
        who = _subject(step.action, tuple(step.changed))
        lines += [f"request = {_text(who)}"] if who else []
        changes = ", ".join(f"{_text(path)} = {_text(new)}" for path, (_, new) in step.changed.items())
        lines += [f"after = {{ {changes} }}"] if changes else []
    return "\n".join([*lines, ""])


def _model(model: Origin) -> list[str]:
    lines = ["", "[model]", f"system = {_text(model.system)}", f"profile = {_text(model.profile)}"]
    lines += [f"toggles = [{', '.join(map(_text, model.toggles))}]"] if model.toggles else []
    lines += ["of_steps = true"] if model.of_steps else []
    for title, values in (("bounds", model.bounds), ("constants", model.constants)):
        if values:
            lines += [
                "",
                f"[model.{title}]",
                *(f"{name} = {_value(value)}" for name, value in values.items()),
            ]
    return lines


def _event(action: str) -> str:
    """The event alone: `prefetch.hit r0 [room]` is a hit, so is TLC's `Hit`."""
    first = action.split(" ")[0].rstrip(",").rpartition(".")[2]
    return _snake(first) if first and first[0].isupper() else first


def _subject(action: str, changed: tuple[str, ...]) -> str:
    named = INSTANCE.search(action)
    if named is not None:
        return named[0]
    found = {index[1] for path in changed for index in [INDEXED.search(path)] if index is not None}
    only = found.pop() if len(found) == 1 else ""
    return f"r{only}" if only.isdigit() else only


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def _value(value: Constant | tuple[int, ...]) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _text(value)
        case tuple():
            return f"[{', '.join(map(str, value))}]"
    return str(value)


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
