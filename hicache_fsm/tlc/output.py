"""What TLC says with `-tool`, as values: messages, counts, the violated property and its counterexample."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hicache_fsm.explore import Trace, TraceStep
from hicache_fsm.tlc.values import Scalar, Value, flatten, parse, show

START: Final = re.compile(r"@!@!@STARTMSG (\d+):(\d+) @!@!@")
END: Final = re.compile(r"@!@!@ENDMSG \d+ @!@!@")
STEP: Final = re.compile(r"\d+: <(.*?)(?: line \d+.*)?>\n?")
BACK: Final = re.compile(r"(\d+): Back to state(?:: <(.*?)(?: line \d+.*)?>)?")
"""The number of the state that a behaviour goes back to, and the action that takes it there."""
COUNTS: Final = re.compile(r"([\d,]+) states generated[^,]*?, ([\d,]+) distinct states found")
DEPTH: Final = re.compile(r"graph search is (\d+)")

STATE, STUTTERING, BACK_TO = 2217, 2218, 2122
STATS, DEPTH_CODE, PROGRESS = 2199, 2194, 2200
SUCCESS = 2193
INVARIANTS = frozenset({2107, 2110})
ACTION_PROPERTIES = frozenset({2108, 2112})
TEMPORAL, DEADLOCK = 2116, 2114


@dataclass(frozen=True, slots=True)
class Message:
    """One message of TLC: its code, its severity (0 none, 1 error, 2 warning, 4 state), its text."""

    code: int
    severity: int
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A state of a behaviour, and the action that led to it; empty for the initial state."""

    action: str
    state: Mapping[str, Value]

    @property
    def scalars(self) -> dict[str, Scalar]:
        """Every scalar of the state by its path."""
        return dict(pair for name, value in self.state.items() for pair in flatten(name, value))


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A counterexample, initial state first; `loops_to` is the number of the state, from 1, that its end goes back to.

    0 means that it does not loop, `back` is the action that takes it back; `stutters` means that it stays in its last
    state for ever.
    """

    steps: tuple[Step, ...]
    loops_to: int = 0
    back: str = ""
    stutters: bool = False

    def __len__(self) -> int:
        """Steps, as `explore` counts them: the initial state is none."""
        return max(0, len(self.steps) - 1)

    def trace(self, about: str) -> Trace:
        """The same in the form that `check` prints."""
        found = [
            TraceStep(after.action, (), _changed(before.scalars, after.scalars))
            for before, after in zip(self.steps, self.steps[1:], strict=False)
        ]
        if self.stutters:
            found.append(TraceStep("stays here for ever", (), {}))
        elif self.loops_to:
            place = "the initial state" if self.loops_to == 1 else f"the state after step {self.loops_to - 1}"
            found.append(
                TraceStep(f"{self.back}: back to {place}, and so on for ever".removeprefix(": "), (), {})
            )
        return Trace(about, tuple(found))


def messages(lines: Iterable[str]) -> Iterator[Message]:
    """The messages of a run, each when it ends; one inside another comes before it."""
    stack: list[tuple[int, int, list[str]]] = []
    for line in lines:
        begins = START.search(line)
        if begins:
            stack.append((int(begins[1]), int(begins[2]), []))
        elif END.search(line):
            if stack:
                code, severity, text = stack.pop()
                yield Message(code, severity, "".join(text).strip())
        elif stack:
            stack[-1][2].append(line if line.endswith("\n") else line + "\n")


def state(text: str) -> dict[str, Value]:
    """A state as TLC prints it: conjuncts `/\\ variable = value`, or one equation alone."""
    parts = re.split(r"(?:^|\n)\s*/\\ ", text) if text.lstrip().startswith("/\\") else [text]
    found: dict[str, Value] = {}
    for part in parts:
        name, equals, value = part.partition(" = ")
        if equals:
            found[name.strip()] = parse(value)
    return found


def behaviour(found: Iterable[Message]) -> Behaviour:
    """The counterexample among the messages, empty if there is none."""
    steps: list[Step] = []
    loops_to, back, stutters = 0, "", False
    for message in found:
        if message.code == STATE:
            head = STEP.match(message.text)
            if head is not None:
                action = "" if head[1] == "Initial predicate" else head[1]
                steps.append(Step(action, state(message.text[head.end() :])))
        elif message.code == STUTTERING:
            stutters = True
        elif message.code == BACK_TO:
            returns = BACK.match(message.text)
            loops_to, back = (int(returns[1]), returns[2] or "") if returns is not None else (1, "")
    return Behaviour(tuple(steps), loops_to, back, stutters)


def counts(text: str) -> tuple[int, int] | None:
    """(generated, distinct) of a line that counts states."""
    found = COUNTS.search(text)
    return (_number(found[1]), _number(found[2])) if found is not None else None


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _changed(before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> dict[str, tuple[str, str]]:
    names = dict.fromkeys((*before, *after))
    return {
        name: (show(before.get(name, "-")), show(after.get(name, "-")))
        for name in names
        if before.get(name) != after.get(name)
    }
