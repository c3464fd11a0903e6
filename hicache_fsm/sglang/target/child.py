"""The engine's side of the pipe: ``python -m hicache_fsm.sglang.target.child VERSION MODE``.

One JSON object a line each way. ``{"world": {...}}`` begins a world, ``{"event": {...}}`` drives it, ``{"look": true}``
shows it, ``{"renew": true}`` starts a fresh engine.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, TextIO

from ..settings import Mode
from .world import PlainWorld

AGAIN = 3
"""The exit status of an engine's process that another one is to follow."""
PR_SET_PDEATHSIG = 1


class Session:
    """One engine and the world that it is in."""

    def __init__(self, version: str, mode: Mode) -> None:
        """Builds the engine: seconds. Raises what SGLang raises."""
        from .engine import GatedEngine

        self._engine = GatedEngine(version, mode, _folder())
        self._driver: Any = None
        self._ended = ""

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer to one line."""
        import torch

        # as SGLang's own event loop
        with torch.inference_mode():
            return self._answer(asked)

    def _answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        from .driver import Driver
        from .words import Word

        if "world" in asked:
            self._driver = Driver(self._engine, PlainWorld.of(asked["world"]))
            return {}
        if "look" in asked:
            return {"observed": self._driver.look.observe(), "ended": self._ended}
        if self._ended:
            return {"answer": "refused", "why": f"the engine has ended: {self._ended}"}
        word = Word(**{**asked["event"], "subjects": tuple(asked["event"].get("subjects", ()))})
        try:
            answer, why = self._driver.drive(word)
        except Exception as error:
            self._ended = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return {
                "answer": "refused",
                "why": f"the engine raised {self._ended}",
                "trace": traceback.format_exc(),
            }
        return {"answer": answer, "why": why}


def _folder() -> Path:
    """Where the model goes: the folder that whoever started this process clears away."""
    return Path(tempfile.mkdtemp(dir=os.environ.get("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR")))


def serve(session: Session, lines: TextIO, out: TextIO) -> bool:
    """Answer line by line until the other side closes, or wants a new engine: whether it does."""
    for line in lines:
        asked = json.loads(line)
        if "renew" in asked:
            return True
        try:
            answer = session.answer(asked)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        _say(out, answer)
    return False


def _say(out: TextIO, answer: dict[str, Any]) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


def work(version: str, mode: str, out: TextIO) -> int:
    """One engine, until it is not wanted any more; the exit status of its process."""
    # an engine whose owner is gone has nobody to tell
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    session = Session(version, mode)  # type: ignore[arg-type]
    _say(out, {"ready": True})
    return AGAIN if serve(session, sys.stdin, out) else 0


def main(argv: list[str]) -> int:
    """Serve on standard input and output; what SGLang prints goes to standard error.

    SGLang is imported once; each engine is a fork of what is then there, so that a further one costs no import.
    """
    version, mode = argv
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.ERROR)
    importlib.import_module("sglang.srt.managers.scheduler")
    importlib.import_module(f"{__package__}.driver")
    while True:
        pid = os.fork()
        if pid == 0:
            try:
                status = work(version, mode, out)
            except BaseException:
                traceback.print_exc()
                status = 1
            # SGLang's atexit hooks would wait for threads that are held
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status != AGAIN:
            return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
