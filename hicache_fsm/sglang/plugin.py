"""The entry point of SGLang's plugin framework (group ``sglang.srt.plugins``)."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

LOG_VARIABLE = "HICACHE_FSM_LOG"
"""Names the event log; unset, the plugin does nothing at all."""


def register() -> None:
    """Register the recorder's hooks, if a log is asked for; SGLang applies them afterwards."""
    log = os.environ.get(LOG_VARIABLE)
    if not log:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.version import __version__

    from .hooks import Hooks
    from .recorder import Recorder

    recorder = Recorder(Path(log))
    for target, observer in Hooks(recorder, __version__).targets().items():
        HookRegistry.register(target, recorder.around(observer), HookType.AROUND)
    atexit.register(recorder.close)
