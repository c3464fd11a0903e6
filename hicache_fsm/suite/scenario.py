"""Scenario files: a world, a sequence of events with what must hold along it, and where the story comes from."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from hicache_fsm.spec import load_spec
from hicache_fsm.spec.load import spec_dir
from hicache_fsm.suite.language import WORDS, LanguageError, parse, render
from hicache_fsm.suite.predicate import Predicate, PredicateError, predicate, subjects
from hicache_fsm.suite.protocol import Event, World

Kind = Literal["event", "expect", "holds"]

MODES: Final[Mapping[str, tuple[str, ...]]] = {
    "mode": ("buffer_only", "cache"),
    "layout": ("dense", "swa", "mamba"),
    "policy": ("wait_complete", "best_effort", "timeout"),
}

KEYS: Final = {"id", "about", "upstream", "steps", "world", "judges"}


class ScenarioError(ValueError):
    """A file that is no scenario: the place, what is wrong and the mend, in one line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a scenario, and what it asks for.

    An event (`event`): to be refused if `refused`, to be answered in any way if `optional`, tried again after each of
    `within` passes until it happens.  `expect`: `condition` holds now.  `holds`: the invariant was not
    broken up to here.
    """

    line: int
    text: str
    kind: Kind
    event: Event | None = None
    refused: bool = False
    optional: bool = False
    within: int = 0
    condition: Predicate | None = None
    invariant: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A sequence to drive a cache under test by.

    `upstream` are the reports that tell the story, as `#36227` or `vllm#44294`.  `judges` are the invariants that the
    oracle judges at every step, None for all of them.
    """

    id: str
    about: str
    upstream: tuple[str, ...]
    world: World
    steps: tuple[Step, ...]
    judges: frozenset[str] | None = None
    path: Path | None = None

    @property
    def events(self) -> tuple[Event, ...]:
        """The events alone."""
        return tuple(step.event for step in self.steps if step.event is not None)

    @classmethod
    def of(
        cls, name: str, about: str, world: World, events: Iterable[Event], upstream: Sequence[str] = ()
    ) -> "Scenario":
        """A scenario of nothing but events, judged by every invariant; each may be answered as the target likes."""
        steps = tuple(
            Step(number, f"?{render(event)}", "event", event, optional=True)
            for number, event in enumerate(events, 1)
        )
        return cls(name, about, tuple(upstream), world, steps)


def load(path: Path) -> Scenario:
    """The scenario in a file.  Raises ScenarioError for a malformed one, OSError for an unreadable one."""
    scenario = replace(loads(path.read_text(encoding="utf-8"), str(path)), path=path)
    if scenario.id != path.stem:
        raise ScenarioError(f'{path}:1: id "{scenario.id}" is not the file\'s name: call it "{path.stem}"')
    return scenario


def loads(text: str, name: str = "scenario") -> Scenario:
    """The scenario in a text; `name` is what errors call it.  Raises ScenarioError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: not TOML: {error}") from error
    return _Reader(text, name, table).read()


def dumps(scenario: Scenario) -> str:
    """The scenario as the text of a file, which `loads` reads back."""
    lines = [f"id = {_string(scenario.id)}", f"about = {_string(scenario.about)}"]
    lines.append(f"upstream = [{', '.join(map(_string, scenario.upstream))}]")
    if scenario.judges is not None:
        lines.append(f"judges = [{', '.join(map(_string, sorted(scenario.judges)))}]")
    lines += ['steps = """', *(step.text for step in scenario.steps), '"""', "", "[world]"]
    plain = World({})
    for each in fields(World):
        value = getattr(scenario.world, each.name)
        if each.name == "prompts" or value == getattr(plain, each.name):
            continue
        words = f'"{" ".join(sorted(value))}"' if isinstance(value, frozenset) else None
        lines.append(f"{each.name} = {words or (_string(value) if isinstance(value, str) else value)}")
    prompts = (f'{rid} = "{" ".join(pages)}"' for rid, pages in scenario.world.prompts.items())
    return "\n".join([*lines, f"prompts = {{ {', '.join(prompts)} }}", ""])


def shipped() -> Path:
    """The folder of the scenarios that belong to this package."""
    return spec_dir() / "scenarios"


def collect(paths: Sequence[Path]) -> list[Path]:
    """The scenario files named and those in the folders named, in order.

    Raises ScenarioError for a path that does not exist, and for a folder without scenarios.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [each for each in sorted(path.glob("*.toml")) if each.name not in NOT_SCENARIOS]
            if not inside:
                raise ScenarioError(f"{path}: no scenario in it: a scenario is a .toml file")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise ScenarioError(f"{path}: not found: name a scenario file or a folder of them")
    return found


NOT_SCENARIOS: Final = frozenset({"expected.toml", "out-of-scope.toml", "mutations.toml"})
"""Tables that lie beside scenarios."""


@cache
def _invariants() -> frozenset[str]:
    """The ids of the spec's invariants."""
    return frozenset(load_spec().invariants)


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Reader:
    """Reads one file; every complaint names the file, the line and the mend."""

    def __init__(self, text: str, name: str, table: Mapping[str, Any]) -> None:
        self._lines = text.splitlines()
        self._name, self._table = name, table

    def read(self) -> Scenario:
        """The whole of it."""
        table = self._table
        for key in table:
            if key not in KEYS:
                self._refuse(key, f'unknown key "{key}": a scenario has {", ".join(sorted(KEYS))}')
        scenario = str(self._need("id", str))
        about = str(self._need("about", str))
        upstream = self._need("upstream", list)
        if not all(isinstance(each, str) and "#" in each for each in upstream):
            self._refuse("upstream", 'upstream lists reports, as "#36227" or "vllm#44294"')
        world = self._world(self._need("world", dict))
        steps = self._steps(str(self._need("steps", str)), world)
        return Scenario(scenario, about, tuple(upstream), world, steps, self._judges())

    def _judges(self) -> frozenset[str] | None:
        judges = self._table.get("judges")
        if judges is None:
            return None
        known = _invariants()
        for each in judges if isinstance(judges, list) else [judges]:
            if each not in known:
                self._refuse("judges", f'"{each}" is no invariant: `hicache-fsm explain` lists them')
        return frozenset(judges)

    def _world(self, table: Mapping[str, Any]) -> World:
        sizes = {each.name: each for each in fields(World)}
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in sizes:
                self._refuse(key, f'a world has no "{key}": it has {", ".join(sizes)}')
            values[key] = self._value(key, value)
        if "prompts" not in values:
            self._refuse("world", 'a world needs prompts, as prompts = { r = "p1 p2" }')
        self._prefixes(values["prompts"])
        return World(**values)

    def _value(self, key: str, value: Any) -> Any:
        match key:
            case "prompts":
                if not isinstance(value, dict) or not all(
                    isinstance(each, str) and each.split() for each in value.values()
                ):
                    self._refuse(key, 'prompts name the pages of each request, as { r = "p1 p2" }')
                return {rid: tuple(pages.split()) for rid, pages in value.items()}
            case "storage" | "device":
                if not isinstance(value, str):
                    self._refuse(key, f'{key} names pages, as "p1 p2"')
                return frozenset(value.split())
            case "mode" | "layout" | "policy":
                if value not in MODES[key]:
                    self._refuse(key, f"{key} is one of {', '.join(MODES[key])}")
                return value
            case "cap_fraction":
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                    self._refuse(key, "cap_fraction is a share between 0 and 1")
                return float(value)
        least = int(key in ("threshold", "ranks", "pool"))
        if type(value) is not int or value < least:
            self._refuse(key, f"{key} counts from {least} up")
        return value

    def _prefixes(self, prompts: Mapping[str, Sequence[str]]) -> None:
        """A page's name stands for its whole prefix, as a page's hash does."""
        parents: dict[str, str] = {}
        for rid, prompt in prompts.items():
            for before, page in zip(["", *prompt], prompt, strict=False):
                if parents.setdefault(page, before) != before:
                    self._refuse(
                        "prompts",
                        f'{rid}: page "{page}" follows two different pages: name one of them otherwise',
                    )

    def _steps(self, text: str, world: World) -> tuple[Step, ...]:
        first = self._line("steps")
        offset = first + (0 if self._lines[first - 1].rstrip().endswith('"""') else -1)
        steps: list[Step] = []
        for number, line in enumerate(text.splitlines(), 1):
            bare = line.partition("#")[0].strip()
            if not bare:
                continue
            try:
                step = self._step(offset + number, bare)
                _check_names(step, world)
            except (LanguageError, PredicateError) as error:
                raise ScenarioError(f"{self._name}:{offset + number}: {error}") from error
            steps.append(step)
        if not any(step.kind == "event" for step in steps):
            self._refuse("steps", "no event: a scenario drives at least one")
        return tuple(steps)

    def _step(self, line: int, text: str) -> Step:
        word, _, rest = text.partition(" ")
        if word.lstrip("?") == "expect":
            return Step(line, text, "expect", optional=word != "expect", condition=predicate(rest))
        if word == "holds":
            known = _invariants()
            if rest.strip() not in known:
                raise LanguageError(f'"{rest.strip()}" is no invariant: `hicache-fsm explain` lists them')
            return Step(line, text, "holds", invariant=rest.strip())
        refused, optional = text.startswith("!"), text.startswith("?")
        bare, within, passes = text.lstrip("!?").partition(" within ")
        if within and not passes.strip().isdigit():
            raise LanguageError(f'"{text}": within needs a number of passes, as "admit r within 12"')
        event = parse(bare)
        return Step(line, text, "event", event, refused, optional, int(passes) if within else 0)

    def _need(self, key: str, kind: type) -> Any:
        value = self._table.get(key)
        if not isinstance(value, kind) or (isinstance(value, str) and not value.strip()):
            wanted = {"str": "text", "list": "list", "dict": "table"}[kind.__name__]
            self._refuse(key, f'"{key}" is missing or is no {wanted}: give a {wanted}')
        return value

    def _refuse(self, key: str, message: str) -> None:
        raise ScenarioError(f"{self._name}:{self._line(key)}: {message}")

    def _line(self, key: str) -> int:
        """The line on which a key stands, 1 if nowhere."""
        for number, line in enumerate(self._lines, 1):
            if line.strip().startswith((f"{key} ", f"{key}=", f"[{key}]")):
                return number
        return 1


def _check_names(step: Step, world: World) -> None:
    """Every request that a step names has a prompt."""
    pages = {page for prompt in world.prompts.values() for page in prompt}
    if step.event is not None and WORDS[step.event.name].takes == "request":
        _known(step.event.subjects, world.prompts, step.text)
    if step.event is not None and step.event.node:
        _known([step.event.node], pages, step.text)
    if step.condition is not None:
        requests, _ = subjects(step.condition)
        _known(requests, world.prompts, step.text)


def _known(names: Iterable[str], known: Iterable[str], text: str) -> None:
    for name in names:
        if name not in known:
            raise LanguageError(
                f'"{name}" in "{text}" is nobody here: the world has {", ".join(sorted(known))}'
            )
