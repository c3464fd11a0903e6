"""The plugin: what SGLang's plugin framework loads (entry-point group ``sglang.srt.plugins``).

``register`` is the entry point and reads the environment; ``install`` takes the same settings as arguments.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .modes import EVERY_PASSES, RETRIES, Mode, Options, mode_named

if TYPE_CHECKING:
    from .assembly import Plugin
    from .sink import Sink

LOGGER = logging.getLogger(__name__)
METRICS_MODULE = "hicache_fsm.metrics.sglang_sink"
RETRIES_MODULE = "hicache_fsm.sglang.retries_hooks"


def register() -> None:
    """Register the hooks and the retries that the environment asks for; SGLang applies them afterwards.

    A setting that makes no sense is one line in the log, and the engine runs without the plugin.
    """
    try:
        options = Options.of(os.environ)
        sinks = [metrics_sink()] if options.metrics and options.mode is not Mode.OFF else []
        if os.environ.get(RETRIES):
            _replace_retries(os.environ[RETRIES])
    except (ValueError, ImportError) as error:
        LOGGER.error("hicache-fsm is off: %s", error)
        return
    if options.mode is not Mode.OFF:
        _register(options, sinks)


def install(
    mode: str = Mode.OBSERVE,
    *,
    log: Path | None = None,
    every: int = EVERY_PASSES,
    audit_passes: int = 0,
    allow: Sequence[str] = (),
    sinks: Sequence[Sink] = (),
    ranks: int = 0,
) -> Plugin | None:
    """As ``register``, from arguments: call it before SGLang's ``load_plugins``. None for mode ``off``.

    Raises ``ValueError`` for an unknown mode or a negative number.
    """
    options = Options(
        mode_named(mode), log, every=every, audit_passes=audit_passes, allow=frozenset(allow), ranks=ranks
    )
    return None if options.mode is Mode.OFF else _register(options, sinks)


def metrics_sink() -> Sink:
    """The sink that counts for Prometheus. Raises ``ImportError``: one line with the extra to install."""
    try:
        sink: Sink = import_module(METRICS_MODULE).make_sink()
    except ImportError as error:
        raise ImportError(
            f"metrics need the extra `metrics`: pip install hicache-fsm[metrics] ({error})"
        ) from None
    return sink


def _replace_retries(profile: str) -> None:
    try:
        import_module(RETRIES_MODULE).register(profile)
    except ValueError as error:
        raise ValueError(f"{RETRIES}={profile}: {error}") from None


def _register(options: Options, sinks: Sequence[Sink]) -> Plugin:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.version import __version__

    from .assembly import Plugin
    from .lockstep import Lockstep

    lockstep = Lockstep.asked(options)
    plugin = Plugin(options, __version__, sinks if lockstep is None else [*sinks, lockstep])
    plugin.lockstep = lockstep
    for target, hook in plugin.around().items():
        HookRegistry.register(target, hook, HookType.AROUND)
    for target, hook in plugin.before():
        HookRegistry.register(target, hook, HookType.BEFORE)
    if lockstep is not None:
        lockstep.register(HookRegistry, HookType, plugin.keeper, plugin.guard)
    atexit.register(plugin.close)
    return plugin
