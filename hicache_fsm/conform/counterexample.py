"""A counterexample in a file, followed on the shipped runtime step by step."""

import re
import tomllib
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from hicache_fsm.conform.cases import OUT_OF_REACH, Case, ConformError, case
from hicache_fsm.conform.graph import State
from hicache_fsm.conform.plan import configurations
from hicache_fsm.conform.runtime_side import Choice
from hicache_fsm.conform.tlc_side import CLAIM, INSTANCES, snake
from hicache_fsm.conform.views import shared
from hicache_fsm.model import Configuration, ModelError
from hicache_fsm.runtime import IllegalTransition
from hicache_fsm.spec import Spec, load_spec, set_constant

Outcome = Literal["followed", "parted", "undetermined"]

UNDRIVEN: Final = OUT_OF_REACH | {"lapse", "orphan_answer"}
"""Events that the drivers have no call for: a counterexample that needs one says nothing about the runtime."""

KEPT: Final = 8
"""Ways to the same observed state that are followed further, where several choices look alike."""

INDEXED: Final = re.compile(r"(\w+)\[(.+)\]")


class CounterexampleError(Exception):
    """A file that is no counterexample, or one that no runtime can be driven by; one line."""


@dataclass(frozen=True, slots=True)
class Row:
    """A step, and what the runtime's state was after it; `changed` has what the step changed of it."""

    number: int
    event: str
    subject: str
    followed: bool
    changed: Mapping[str, Hashable]
    state: Mapping[str, Hashable]


@dataclass(frozen=True, slots=True)
class FollowedRun:
    """How far the runtime went along; `why` says what it did instead, or why that is not known.

    `followed`: to the end, so the runtime does what the counterexample shows.  `parted`: at the last row.
    `undetermined`: no call brings a step about, or the states alone do not show what is violated.  `model` names the
    system, the profile, and the constants that are other than the profile has them.
    """

    name: str
    about: str
    model: str
    outcome: Outcome
    rows: tuple[Row, ...]
    steps: int
    why: str = ""

    def __str__(self) -> str:
        at = f" at step {self.rows[-1].number} of {self.steps}" if self.outcome == "parted" else ""
        return f"{self.outcome}{at}{': ' if self.why else ''}{self.why}"

    def as_json(self) -> dict[str, Any]:
        """The run as plain values."""
        return {
            "counterexample": self.name,
            "about": self.about,
            "model": self.model,
            "outcome": self.outcome,
            "steps": self.steps,
            "why": self.why,
            "rows": [
                {
                    "step": row.number,
                    "event": row.event,
                    "subject": row.subject,
                    "followed": row.followed,
                    "changed": dict(row.changed),
                    "state": dict(row.state),
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True, slots=True)
class _Step:
    """An event, whom it concerns if that is known, and the model's variables that it changes."""

    event: str
    subject: str
    after: Mapping[str, Hashable]


@dataclass(frozen=True, slots=True)
class _Try:
    """A choice taken at the end of a path: whom it concerns, and where it led, None if the runtime refused."""

    path: tuple[Choice, ...]
    subject: str
    state: State | None


def follow_counterexample(source: Path | str, spec: Spec | None = None) -> FollowedRun:
    """Take each step of a counterexample, a file or its text, on the runtime, with the same bounds and profile.

    A step is followed if a choice with its event and subject leads to the state that comes then, as far as the runtime
    knows it: what a step leaves alone counts as well.  Raises CounterexampleError for a malformed file or a system
    without a runtime, OSError for a file that cannot be read.
    """
    table = _table(source)
    name = str(table.get("counterexample", "counterexample"))
    shipped = spec or load_spec()
    chosen = _case(shipped, name, table)
    return _Replay(chosen, name, table, _described(shipped, chosen)).run()


class _Replay:
    """`_values` are the model's variables as the counterexample has them, `_paths` the runtime's ways there."""

    def __init__(self, chosen: Case, name: str, table: Mapping[str, Any], model: str) -> None:
        try:
            system = chosen.system()
            self._view = shared(system)
            self._driver = chosen.driver(self._view.names)
        except (ConformError, ModelError, ValueError, TypeError, LookupError) as error:
            raise CounterexampleError(f"{name}: the bounds make no system: {error}") from error
        self._name, self._table, self._model = name, table, model
        variables = {variable.name: variable for variable in system.layout.variables}
        self._words = {each.name: each.names for each in variables.values()}
        self._values: dict[str, Hashable] = {
            each.name: each.show(system.initial[each.name]) if each.names else system.initial[each.name]
            for each in variables.values()
        }
        self._letter = INSTANCES[system.name]
        self._paths: list[tuple[Choice, ...]] = [()]
        self._state = self._view.of(self._values)
        self._steps = [self._read(number, step) for number, step in enumerate(self._listed(), 1)]

    def run(self) -> FollowedRun:
        """Go as far as the runtime does."""
        rows: list[Row] = []
        for number, step in enumerate(self._steps, 1):
            before = self._state
            self._values |= step.after
            wanted = self._view.of(self._values)
            tries = [each for path in self._paths for each in self._tries(path, step)]
            agreeing = [each for each in tries if each.state == wanted]
            if agreeing or wanted == before:
                self._paths = [each.path for each in agreeing[:KEPT]] or self._paths
                self._state = wanted
                subject = next((each.subject for each in agreeing), step.subject)
                rows.append(self._row(number, step.event, subject, before, wanted, followed=True))
                continue
            if step.event in UNDRIVEN:
                return self._ended("undetermined", rows, f'no public call brings about "{step.event}"')
            nearest = min(tries, key=lambda each: self._distance(each, wanted), default=None)
            reached = before if nearest is None or nearest.state is None else nearest.state
            subject = step.subject if nearest is None else nearest.subject
            rows.append(self._row(number, step.event, subject, before, reached, followed=False))
            return self._ended("parted", rows, self._instead(step, nearest, wanted))
        if "for_ever" in self._table:
            why = f"followed, but no replay shows what it does for ever: {self._table['for_ever']}"
            return self._ended("undetermined", rows, why)
        if self._table["model"].get("of_steps"):
            why = "followed, but a step that is wrong by its event may lead where a right one leads as well"
            return self._ended("undetermined", rows, why)
        return self._ended("followed", rows)

    def _tries(self, path: tuple[Choice, ...], step: _Step) -> Iterator[_Try]:
        """Each choice with the step's event and subject, at the end of a path."""
        self._go(path)
        for choice in list(self._driver.choices()):
            event, _, subject = self._driver.label(choice).partition(" ")
            if event != step.event or (subject and step.subject and subject != step.subject):
                continue
            self._go(path)
            try:
                taken = self._driver.take(choice)
            except IllegalTransition:
                taken = False
            yield _Try((*path, choice), subject, self._driver.observe() if taken else None)

    def _go(self, path: tuple[Choice, ...]) -> None:
        self._driver = self._driver.restart()
        for choice in path:
            self._driver.take(choice)

    def _distance(self, tried: _Try, wanted: State) -> int:
        if tried.state is None:
            return len(wanted) + 1
        return sum(one != other for one, other in zip(tried.state, wanted, strict=True))

    def _instead(self, step: _Step, nearest: _Try | None, wanted: State) -> str:
        if nearest is None:
            return f'nothing in the runtime\'s state lets "{step.event}" happen'
        if nearest.state is None:
            return f'the runtime refuses "{step.event}"'
        pairs = zip(self._view.names, nearest.state, wanted, strict=True)
        return ", ".join(f"{name} is {here}, not {there}" for name, here, there in pairs if here != there)

    def _row(
        self, number: int, event: str, subject: str, before: State, after: State, *, followed: bool
    ) -> Row:
        names = self._view.names
        old, new = dict(zip(names, before, strict=True)), dict(zip(names, after, strict=True))
        changed = {name: value for name, value in new.items() if value != old[name]}
        return Row(number, event, subject, followed, changed, new)

    def _ended(self, outcome: Outcome, rows: list[Row], why: str = "") -> FollowedRun:
        about = str(self._table.get("about", ""))
        return FollowedRun(self._name, about, self._model, outcome, tuple(rows), len(self._steps), why)

    def _listed(self) -> list[Any]:
        steps = self._table.get("steps")
        if not isinstance(steps, list) or not steps:
            raise CounterexampleError(f"{self._name}: no [[steps]]")
        return steps

    def _read(self, number: int, step: Any) -> _Step:
        if not isinstance(step, Mapping) or not isinstance(step.get("event"), str):
            raise CounterexampleError(f"{self._name}: step {number} has no event")
        after = step.get("after", {})
        if not isinstance(after, Mapping):
            raise CounterexampleError(f"{self._name}: step {number}: after is no table")
        try:
            changes = dict(pair for path, text in after.items() for pair in self._change(path, str(text)))
        except (LookupError, ValueError) as error:
            raise CounterexampleError(f"{self._name}: step {number}: {error.args[0]}") from error
        return _Step(snake(step["event"]), str(step.get("request", "")), changes)

    def _change(self, path: str, text: str) -> Iterator[tuple[str, Hashable]]:
        """A change of TLC's variables in the model's words; one of the model's own stays as it is."""
        found = INDEXED.fullmatch(path)
        name = path if path in self._values else snake(path)
        if found is not None:
            name = f"{self._letter}{re.sub('[<>, ]', '', found[2])}.{snake(found[1])}"
        if name in self._values:
            yield name, self._word(name, text)
            return
        node, _, short = name.rpartition(".")
        claims = [each for each in map(CLAIM.fullmatch, self._values) if each is not None and each[1] == node]
        if short != "claims" or not claims:
            raise LookupError(f"{path} is no variable of {self._model}")
        for claim in claims:
            yield claim[0], int(f"l{claim[2]}" in re.findall(r"\w+", text))

    def _word(self, name: str, text: str) -> Hashable:
        words = self._words[name]
        if text in words:
            return text
        number = {"TRUE": 1, "FALSE": 0}.get(text)
        number = int(text) if number is None and re.fullmatch(r"-?\d+", text) else number
        if number is None or (words and number not in range(len(words))):
            raise ValueError(f"{name} cannot be {text}")
        return words[number] if words else number


def _table(source: Path | str) -> Mapping[str, Any]:
    where = f"{source}: " if isinstance(source, Path) else ""
    try:
        text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
        return tomllib.loads(text)
    except ValueError as error:
        raise CounterexampleError(f"{where}no counterexample: {' '.join(str(error).split())}") from error


def _case(spec: Spec, name: str, table: Mapping[str, Any]) -> Case:
    """The case of the counterexample's [model]: a system with bounds, or a named configuration."""
    model = table.get("model")
    if not isinstance(model, Mapping):
        raise CounterexampleError(
            f"{name}: no [model]: `hicache-fsm tlc MODEL --counterexample FILE` writes one"
        )
    profile, bounds, constants = (model.get(key, {}) for key in ("profile", "bounds", "constants"))
    if not all(isinstance(each, Mapping) for each in (bounds, constants)):
        raise CounterexampleError(f"{name}: bounds and constants are tables")
    try:
        configuration = _configuration(name, model, bounds)
        chosen_profile = str(profile or "recommended")
        built = case(spec, configuration, chosen_profile)
        bounded = set_constant(built.spec, chosen_profile, **constants)
        built = case(bounded, configuration, chosen_profile)
    except (ConformError, ValueError, TypeError) as error:
        raise CounterexampleError(f"{name}: {error}") from error
    if not built.has_runtime:
        raise CounterexampleError(
            f"{name}: the runtime is one rank's: it has no {configuration.system} to replay"
        )
    return built


def _described(shipped: Spec, chosen: Case) -> str:
    before, after = (asdict(each.profiles[chosen.profile].constants) for each in (shipped, chosen.spec))
    others = ", ".join(f"{key} = {value}" for key, value in after.items() if value != before[key])
    with_others = f" with {others}" if others else ""
    return f"{chosen.configuration.system} ({chosen.profile}{with_others})"


def _configuration(name: str, model: Mapping[str, Any], bounds: Mapping[str, Any]) -> Configuration:
    known = configurations()
    if "configuration" in model:
        if model["configuration"] not in known:
            raise ConformError(f'unknown configuration "{model["configuration"]}"')
        return known[model["configuration"]]
    for key, value in bounds.items():
        sizes = value if isinstance(value, list) else [value]
        if not all(type(size) is int and size >= 0 for size in sizes):
            raise ConformError(f"{key} is a size, not {value!r}")
    return Configuration(name, str(model.get("system", "")), "", False, {}, bounds)
