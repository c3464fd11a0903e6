"""Runs TLC on one model, in a folder of its own, and reads its verdict."""

import re
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Final, Literal

from hicache_fsm.explore import Trace
from hicache_fsm.tlc import output
from hicache_fsm.tlc.errors import TlcError
from hicache_fsm.tlc.locate import Tools
from hicache_fsm.tlc.output import Behaviour, Message

Verdict = Literal["success", "safety failure", "liveness failure", "deadlock failure"]
Tell = Callable[[str], None]

TAIL: Final = 40
"""Lines of output outside messages that are kept, to explain a run that ended without a verdict."""


@dataclass(frozen=True, slots=True)
class Job:
    """A model to check: the module and the cfg by their file names in `folder`.

    `heap` is the JVM's largest heap in MiB, `limit_s` the most seconds it may run; 0 leaves both to themselves.
    `extra` are generated modules, by file name.
    """

    folder: Path
    module: str
    cfg: str
    checks_deadlock: bool = False
    workers: int = 1
    heap: int = 0
    limit_s: float = 0
    dump: Path | None = None
    extra: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the model is called: its cfg without the suffix."""
        return self.cfg.removesuffix(".cfg")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What TLC found.  `depth` counts steps, as `explore` does: one less than TLC, which counts states.

    `printed` are the tuples that the module printed, one a line.
    """

    name: str
    verdict: Verdict
    property: str
    distinct: int
    generated: int
    depth: int
    seconds: float
    behaviour: Behaviour
    printed: tuple[str, ...] = ()

    def trace(self) -> Trace | None:
        """The counterexample in the form that `check` prints."""
        if self.verdict == "success":
            return None
        about = "no step is enabled at the end" if self.verdict == "deadlock failure" else "is violated"
        return self.behaviour.trace(f"{self.name}: {self.property} {about}".replace(":  ", ": "))


def run(tools: Tools, job: Job, tell: Tell = lambda _: None) -> Outcome:
    """Check one model; `tell` gets a word of progress about once a minute.

    Raises TlcError if TLC gives no verdict: a bad module or cfg, a JVM that was killed, no memory, a full disk.
    """
    with _folder(job) as folder:
        process = subprocess.Popen(
            _command(tools, job, folder),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        timer = Timer(job.limit_s, process.kill) if job.limit_s else None
        if timer is not None:
            timer.start()
        try:
            heard = _Heard(_only_property((folder / job.cfg).read_text(encoding="utf-8")))
            for message in output.messages(heard.listen(process.stdout or ())):
                heard.take(message)
                if message.code == output.PROGRESS:
                    tell(message.text)
            code = process.wait()
        finally:
            if timer is not None:
                timer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        if timer is not None and code == -signal.SIGKILL and heard.verdict is None and not timer.is_alive():
            raise TlcError(
                f"{job.name}: no verdict in {job.limit_s:g} seconds: give it more, or lower its bounds"
            )
        return heard.outcome(job, code)


def _command(tools: Tools, job: Job, folder: Path) -> Sequence[str]:
    # TLC unpacks its standard modules into the JVM's temporary folder, where two runs would meet.
    jvm = [str(tools.java), "-XX:+UseParallelGC", f"-Djava.io.tmpdir={folder}"]
    jvm += [f"-Xmx{job.heap}m"] if job.heap else []
    tlc = [
        "-cp",
        str(tools.jar),
        "tlc2.TLC",
        "-tool",
        "-workers",
        str(job.workers),
        "-metadir",
        str(folder / "states"),
    ]
    # Fixed fingerprints, and liveness checked once at the end: the same counterexample in every run.
    tlc += ["-fp", "0", "-lncheck", "final"]
    tlc += [] if job.checks_deadlock else ["-deadlock"]
    tlc += ["-dump", "dot,actionlabels", str(job.dump)] if job.dump is not None else []
    return [*jvm, *tlc, "-config", job.cfg, f"{job.module}.tla"]


@contextmanager
def _folder(job: Job) -> Iterator[Path]:
    """A copy of the modules: TLC writes beside what it reads, and takes no path for a cfg."""
    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as name:
        folder = Path(name)
        for module in job.folder.glob("*.tla"):
            shutil.copy(module, folder)
        for file, text in job.extra.items():
            (folder / file).write_text(text, encoding="utf-8")
        for file in (f"{job.module}.tla", job.cfg):
            if not (folder / file).is_file():
                if not (job.folder / file).is_file():
                    raise TlcError(f"{job.name}: there is no {job.folder / file}")
                shutil.copy(job.folder / file, folder)
        yield folder


class _Heard:
    """What a run has said so far."""

    def __init__(self, asked: str) -> None:
        self.verdict: Verdict | None = None
        self._asked = asked
        self._property = ""
        self._generated = self._distinct = self._depth = 0
        self._seconds = 0.0
        self._states: list[Message] = []
        self._errors: list[str] = []
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._printed: list[str] = []

    def listen(self, lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
        for line in lines:
            if "@!@!@" not in line:
                self._tail.append(line.strip())
                if line.startswith("<<"):
                    self._printed.append(line.strip())
            yield line

    def take(self, message: Message) -> None:
        code, text = message.code, message.text
        if code in output.INVARIANTS:
            self._violated("safety failure", _named(text, "Invariant"))
        elif code in output.ACTION_PROPERTIES:
            self._violated("safety failure", _named(text, "Action property"))
        elif code == output.TEMPORAL:
            self._violated("liveness failure", self._asked)
        elif code == output.DEADLOCK:
            self._violated("deadlock failure", "")
        elif code == output.SUCCESS:
            self.verdict = self.verdict or "success"
        elif code in (output.STATE, output.STUTTERING, output.BACK_TO):
            self._states.append(message)
        elif code == output.DEPTH_CODE:
            found = output.DEPTH.search(text)
            self._depth = int(found[1]) if found is not None else 0
        elif message.severity == 1 or code in (5001, 5006):
            self._errors.append(text)
        counted = output.counts(text) if code in (output.STATS, output.PROGRESS) else None
        if counted is not None:
            self._generated, self._distinct = counted
        ended = re.match(r"Finished in (\d+)ms", text)
        if ended is not None:
            self._seconds = int(ended[1]) / 1000

    def _violated(self, verdict: Verdict, name: str) -> None:
        if self.verdict is None:
            self.verdict, self._property = verdict, name

    def outcome(self, job: Job, code: int) -> Outcome:
        if code < 0:
            raise TlcError(f"{job.name}: {_killed(code)}")
        if self.verdict is None or (self.verdict == "success" and code != 0):
            raise TlcError(f"{job.name}: {self._why(code)}")
        found = output.behaviour(self._states)
        depth = max(0, self._depth - 1)
        return Outcome(
            job.name,
            self.verdict,
            self._property,
            self._distinct,
            self._generated,
            depth,
            self._seconds,
            found,
            tuple(self._printed),
        )

    def _why(self, code: int) -> str:
        """One line on why there is no verdict."""
        said = " ".join([*self._errors, *self._tail])
        if "No space left on device" in said:
            return f"the disk of {tempfile.gettempdir()} is full: free some, or point TMPDIR elsewhere"
        if "OutOfMemoryError" in said or "Could not reserve enough space" in said:
            return "the JVM ran out of memory: give it a larger heap, or lower the bounds"
        parsing = next((line for line in self._tail if "***Parse Error***" in line or "rror:" in line), "")
        line = self._errors[0] if self._errors else parsing or next(filter(None, reversed(self._tail)), "")
        return f"TLC gave no verdict (exit {code}): {' '.join(line.split())[:300]}"


def _killed(code: int) -> str:
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"the JVM was killed by {name}: too little memory is the usual cause"


def _only_property(cfg: str) -> str:
    """The one property of a cfg: TLC does not say which one a behaviour violates."""
    bare = re.sub(r"\\\*.*", "", cfg)
    section = re.search(r"\bPROPERT(?:Y|IES)\s+((?:[A-Za-z_]\w*\s+)*)", bare + "\n")
    names = section[1].split() if section is not None else []
    return names[0] if len(names) == 1 else ""


def _named(text: str, what: str) -> str:
    found = re.search(rf"{what} (\S+) is violated", text)
    return found[1] if found is not None else ""
