"""Exit codes, and the one line that bad input gets."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

import typer

from hicache_fsm.explore import EngineError
from hicache_fsm.model import ModelError
from hicache_fsm.runtime.logread import LogError
from hicache_fsm.sglang.record import HarnessMissingError, RunError
from hicache_fsm.spec import SpecError


class Exit(IntEnum):
    """What a command's exit code says. Undetermined (a bound was hit) is never a pass."""

    HOLDS = 0
    VIOLATED = 1
    BAD_INPUT = 2
    UNDETERMINED = 3


def refuse(message: str) -> NoReturn:
    """Say what is wrong with the input, on stderr, and exit 2."""
    typer.echo(message, err=True)
    raise typer.Exit(Exit.BAD_INPUT)


@contextmanager
def bad_input() -> Iterator[None]:
    """Turn the errors that input can cause into their message and exit 2; everything else is a bug."""
    try:
        yield
    except (SpecError, ModelError, EngineError, LogError, HarnessMissingError, RunError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """What is imported inside comes with this extra: where it is not installed, say so and exit 2."""
    try:
        yield
    except ModuleNotFoundError as error:
        refuse(f"{error.name} is not installed: pip install 'hicache-fsm[{extra}]'")


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2))
