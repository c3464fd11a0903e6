"""The wall between the plugin and the engine: a fault of the plugin switches the plugin off, and no more."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator
from typing import Any

from .modes import InvariantViolation

LOGGER = logging.getLogger(__name__)
Hook = Callable[..., Generator[None, Any, None]]
Before = Callable[..., Any]
After = Callable[[Any, Any], None]
Touch = Callable[..., None]
When = Callable[..., bool]


class Guard:
    """Makes hooks for SGLang's registry. ``failed`` says that the plugin is off after a fault.

    ``InvariantViolation`` is no fault: strict mode means it to reach the engine.
    """

    def __init__(self) -> None:
        self.failed = False

    def around(self, hook: Hook, when: When | None = None) -> Callable[..., Any]:
        """An AROUND hook from a generator: up to its ``yield`` before the call, the rest after it.

        The generator costs more than a microsecond, so ``when`` says from the call's arguments whether it matters
        at all.
        """

        @functools.wraps(hook)
        def observed(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self.failed:
                return original(*args, **kwargs)
            observer: Generator[None, Any, None] | None = None
            try:
                if when is None or when(*args, **kwargs):
                    observer = hook(*args, **kwargs)
                    next(observer)
            except InvariantViolation:
                raise
            except Exception:
                observer = None
                self.fail(hook.__name__)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if observer is not None:
                    observer.close()
                raise
            if observer is not None:
                self._finish(observer, result, hook.__name__)
            return result

        return observed

    def pair(self, before: Before, after: After) -> Callable[..., Any]:
        """An AROUND hook from two functions, for methods that every pass calls: a generator costs four times that.

        ``before`` gets the call's arguments; unless it returns None, ``after`` gets what it returned and the
        result. An exception of the engine passes by ``after``.
        """

        @functools.wraps(before)
        def observed(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            noted = None
            if not self.failed:
                try:
                    noted = before(*args, **kwargs)
                except InvariantViolation:
                    raise
                except Exception:
                    self.fail(before.__name__)
            result = original(*args, **kwargs)
            if noted is not None and not self.failed:
                try:
                    after(noted, result)
                except InvariantViolation:
                    raise
                except Exception:
                    self.fail(after.__name__)
            return result

        return observed

    def before(self, touch: Touch) -> Callable[..., None]:
        """A BEFORE hook that leaves the arguments as they are."""

        def touched(*args: Any, **kwargs: Any) -> None:
            if not self.failed:
                try:
                    touch(*args, **kwargs)
                except InvariantViolation:
                    raise
                except Exception:
                    self.fail(touch.__name__)

        return touched

    def _finish(self, observer: Generator[None, Any, None], result: Any, name: str) -> None:
        try:
            observer.send(result)
        except StopIteration:
            return
        except InvariantViolation:
            raise
        except Exception:
            self.fail(name)
            return
        observer.close()

    def fail(self, name: str) -> None:
        """Switch the plugin off, inside the ``except`` clause of the fault; only the first one is told."""
        if not self.failed:
            self.failed = True
            LOGGER.exception("hicache-fsm is off after a fault in %s; the engine runs on", name)
