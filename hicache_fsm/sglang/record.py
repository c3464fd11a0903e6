"""Run the real SGLang in a child process from any environment, and collect what it wrote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from .install import DEFAULT_ROOT, STAMP, check_known, env_python, mend
from .modes import LOG
from .run import STRICT_EXIT, STRICT_TOLD

REFUSED: Final = re.compile(r"(?:.*: error|sglang run): (.*)")
"""The last line of a child that refuses its options."""


class HarnessMissingError(RuntimeError):
    """The real SGLang is not laid out; the message names the command that does it."""


class RunError(RuntimeError):
    """The child ended badly; the message carries its last lines."""


class EngineEndedError(RunError):
    """The engine ended by an exception or a signal: a line that says which, then the child's last lines."""


class StrictError(RunError):
    """Strict mode found something; the message is the finding with the history of its request."""


def require(version: str, root: Path = DEFAULT_ROOT) -> None:
    """Raises ``ValueError`` for an unknown version, ``HarnessMissingError`` for one not installed."""
    check_known(version)
    for part in ("env", version):
        if not (root / part / STAMP).exists():
            raise HarnessMissingError(f"{root / part} is missing or incomplete: run `{mend(version)}`")


def child_environment(
    version: str,
    storage_dir: Path,
    root: Path = DEFAULT_ROOT,
    *,
    log: Path | None = None,
    plugin: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of a child on ``version``: stubs first, then SGLang; the environment finds this package.

    ``plugin`` are variables of the plugin (docs/plugin.md). Without them and without ``log`` SGLang loads no
    plugin at all; those of the caller's own environment are not passed on.
    """
    stubs = Path(__file__).with_name("stubs")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SGLANG_", "PYTHON", "HICACHE_FSM_"))
    }
    environment |= {
        "PYTHONPATH": os.pathsep.join(map(str, (stubs, root / version))),
        "PYTHONWARNINGS": "ignore",
        "PYTHONHASHSEED": "0",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_PLUGINS": "hicache_fsm" if log or plugin else "none",
        "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(storage_dir),
        "OMP_NUM_THREADS": "1",
        # one folder a version, else each switch rebuilds SGLang's page-hash extension
        "TORCH_EXTENSIONS_DIR": str(root / "extensions" / version),
    }
    if version == "0.5.19":
        environment["SGLANG_ENABLE_HICACHE_BUFFER_ANCHOR_LOCK"] = "1"
    environment |= plugin or {}
    if log:
        environment[LOG] = str(log)
    return environment


def record(
    version: str,
    out: Path | None,
    *,
    arguments: Sequence[str] = (),
    outputs: Path | None = None,
    root: Path = DEFAULT_ROOT,
    progress: Callable[[str], None] | None = None,
    plugin: Mapping[str, str] | None = None,
    report: Path | None = None,
) -> list[str]:
    """Play the workload on ``version`` and write its event log to ``out`` (None: no log).

    ``arguments`` go to ``hicache_fsm.sglang.run``, ``plugin`` are variables of the plugin, ``report`` gets what
    it found as JSON, ``progress`` each line as it comes. Returns all lines. Raises ``ValueError``,
    ``HarnessMissingError``, ``StrictError`` when strict mode ended the run, ``EngineEndedError``, or ``RunError``
    for options that the run refuses.
    """
    require(version, root)
    command = [str(env_python(root)), "-m", "hicache_fsm.sglang.run", "--version", version, *arguments]
    if outputs:
        command += ["--outputs", str(outputs)]
    if report:
        command += ["--report", str(report)]
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hicache-fsm-") as storage:
        environment = child_environment(
            version, Path(storage), root, log=out.resolve() if out else None, plugin=plugin
        )
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                lines.append(line.rstrip())
                if progress:
                    progress(lines[-1])
    if child.returncode == STRICT_EXIT:
        raise StrictError(f"sglang {version} run, strict: " + _told(lines))
    if child.returncode == 2 and lines and (refused := REFUSED.match(lines[-1])):
        raise RunError(f"options of the run: {refused[1]}; docs/harness.md has them")
    if child.returncode:
        tail = "\n".join(lines[-15:])
        last = lines[-1].split("]: ", 1)[-1] if lines and child.returncode > 0 else f"exit {child.returncode}"
        raise EngineEndedError(f"the engine, SGLang {version}, has ended: {last}\n{tail}")
    return lines


def _told(lines: Sequence[str]) -> str:
    begins = next((at for at, line in enumerate(lines) if STRICT_TOLD in line), len(lines) - 1)
    return "\n".join([lines[begins].split(STRICT_TOLD, 1)[1], *lines[begins + 1 :]])


def main(argv: Sequence[str] | None = None) -> int:
    """``python -m hicache_fsm.sglang.record VERSION LOG [run arguments...]``."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) < 2:
        print(main.__doc__, file=sys.stderr)
        return 2
    version, out, *rest = arguments
    try:
        record(version, None if out == "-" else Path(out), arguments=rest, progress=print)
    except (ValueError, RuntimeError) as error:
        print(f"sglang record: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
