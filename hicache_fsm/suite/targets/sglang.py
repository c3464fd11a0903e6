"""The real SGLang behind gates, in a process of its own: `sglang-0.5.19` to `sglang-0.5.23`."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from hicache_fsm.sglang.install import DEFAULT_ROOT, check_known, env_python
from hicache_fsm.sglang.record import child_environment, require
from hicache_fsm.suite.protocol import Answer, Event, Observed, Reply, RequestView, UnsupportedError, World

MODES: Final = ("buffer_only", "cache")
POLICIES: Final = ("wait_complete", "best_effort", "timeout")
TAIL: Final = 12
"""Lines of a child's standard error that a failure shows."""


class EngineError(RuntimeError):
    """The engine's process said something unexpected, or has ended; the message carries its last lines."""


@dataclass(slots=True)
class Child:
    """One engine in a process of its own, which takes one world after another."""

    version: str
    mode: str
    root: Path = DEFAULT_ROOT
    _process: "subprocess.Popen[str] | None" = None
    _folder: "tempfile.TemporaryDirectory[str] | None" = None
    user: object = None
    """The cache under test that the engine's world belongs to."""

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One line there and back. Raises EngineError."""
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        except OSError as error:
            raise self._ended() from error
        return self._read(process)

    def _read(self, process: "subprocess.Popen[str]") -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(f"sglang {self.version}: {answer['error']}\n{answer.get('trace', '')}")
        return answer

    def _start(self) -> "subprocess.Popen[str]":
        require(self.version, self.root)
        self._folder = tempfile.TemporaryDirectory(prefix="hicache-fsm-target-")
        folder = Path(self._folder.name)
        # a file, not a pipe: nobody reads it while the engine runs
        with (folder / "stderr").open("w") as errors:
            self._process = subprocess.Popen(
                [
                    str(env_python(self.root)),
                    "-m",
                    "hicache_fsm.sglang.target.child",
                    self.version,
                    self.mode,
                ],
                env=child_environment(self.version, folder, self.root),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._read(self._process)
        return self._process

    def _ended(self) -> EngineError:
        lines = Path(self._folder.name, "stderr").read_text().splitlines() if self._folder else []
        self.stop()
        return EngineError(f"the process of sglang {self.version} has ended:\n" + "\n".join(lines[-TAIL:]))

    def renew(self) -> None:
        """Another engine, in another process, without another import of SGLang. Raises EngineError."""
        if self._process is not None:
            self.ask({"renew": True})

    def stop(self) -> None:
        """End the process; the next question starts another."""
        process, folder, self._process, self._folder = self._process, self._folder, None, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        if folder is not None:
            folder.cleanup()


@dataclass(slots=True)
class SglangCache:
    """One world in a child. The child serves one world at a time: a new one ends the old one."""

    name: str
    _child: Child
    traces: list[str] = field(default_factory=list)
    """The Python traces of what the engine raised, newest last."""
    _broken: bool = False

    def drive(self, event: Event) -> Reply:
        """See `CacheUnderTest`; an engine that raises has ended: it refuses this event and all that follow."""
        self._mine()
        asked = {
            "name": event.name,
            "subjects": list(event.subjects),
            "node": event.node,
            "amount": event.amount,
            "facts": dict(event.facts),
        }
        answer = self._child.ask({"event": asked})
        if "trace" in answer:
            self.traces.append(answer["trace"])
            self._broken = True
        return Reply(Answer(answer["answer"]), answer["why"])

    def observe(self) -> Observed:
        """The state now."""
        self._mine()
        answer = self._child.ask({"look": True})
        shown = answer["observed"]
        requests = {rid: RequestView(**view) for rid, view in shown.pop("requests").items()}
        return Observed(
            requests=requests,
            faults=_faults(answer["ended"]),
            **{name: _frozen(value) for name, value in shown.items()},
        )

    def close(self) -> None:
        """The engine goes on to the next world; one that raised is not used again."""
        if self._child.user is self:
            self._child.user = None
            if self._broken:
                self._child.renew()

    def _mine(self) -> None:
        if self._child.user is not self:
            raise EngineError(f"{self.name}: this world was closed, or another one was built since")


def _frozen(value: Any) -> Any:
    return frozenset(value) if isinstance(value, list) else value


def _faults(ended: str) -> tuple[str, ...]:
    return (f"progress: the engine has ended: {ended}",) if ended else ()


@dataclass(slots=True)
class SglangTarget:
    """Builds worlds in the installed SGLang. Not for several processes at once: each makes its own."""

    version: str
    root: Path = DEFAULT_ROOT
    in_order: bool = False
    """Storage answers only in the order of asking, as with SGLang's one thread a kind of call."""
    machine_pins: bool = False
    """The pin cap is the machine's (`rules.anchor_cap`) instead of upstream's."""
    stuck: bool = False
    """A held storage call outlasts the ten seconds for which a reset waits for it."""
    _children: dict[str, Child] = field(default_factory=dict, init=False, repr=False)

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"sglang-{self.version}"

    def build(self, world: World) -> SglangCache:
        """See `Target`. Raises UnsupportedError, HarnessMissingError if the version is not installed, EngineError."""
        self._check(world)
        child = self._children.setdefault(world.mode, Child(self.version, world.mode, self.root))
        if child.user is not None:
            raise EngineError(f"{self.name} serves one world at a time: close the one before")
        plain = {name: value for name, value in asdict(world).items() if name != "ranks"}
        plain |= {"in_order": self.in_order, "machine_pins": self.machine_pins, "stuck": self.stuck}
        for name, value in plain.items():
            if isinstance(value, frozenset):
                plain[name] = sorted(value)
        try:
            child.ask({"world": plain})
        except EngineError:
            # the engine may not look like new any more: a fresh one always does
            child.renew()
            child.ask({"world": plain})
        cache = SglangCache(self.name, child)
        child.user = cache
        return cache

    def _check(self, world: World) -> None:
        if world.ranks != 1:
            raise UnsupportedError(f"{self.name} runs one rank, not {world.ranks}")
        if world.layout != "dense":
            raise UnsupportedError(f"{self.name} runs the dense layout, not {world.layout}")
        if world.mode not in MODES or world.policy not in POLICIES:
            raise UnsupportedError(f"{self.name} has no mode {world.mode} with policy {world.policy}")

    def stop(self) -> None:
        """End the processes."""
        for child in self._children.values():
            child.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the processes: each process has its own."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._children = {}


def make(version: str, **options: Any) -> SglangTarget:
    """The target of an installed version; options are fields of it. Raises ValueError for an unknown version."""
    check_known(version)
    return SglangTarget(version, **options)
