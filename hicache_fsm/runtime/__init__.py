"""The machines at work: lifecycles of live requests for a scheduler to embed, and the log they write."""

from hicache_fsm.runtime.attempt import Anchor, AttemptKey
from hicache_fsm.runtime.completions import Completion, WriteCompletion
from hicache_fsm.runtime.errors import IllegalTransition, Past
from hicache_fsm.runtime.executor import Executor, NullExecutor, Undo
from hicache_fsm.runtime.flight import FlightRecorder
from hicache_fsm.runtime.lifecycle import HiCacheLifecycle
from hicache_fsm.runtime.listener import Listener
from hicache_fsm.runtime.log import EventLog, Log
from hicache_fsm.runtime.logread import Line, LogError, TruncatedLog, read_log
from hicache_fsm.runtime.monitor import Monitor, Violation
from hicache_fsm.runtime.settings import Settings

__all__ = [
    "Anchor",
    "AttemptKey",
    "Completion",
    "EventLog",
    "Executor",
    "FlightRecorder",
    "HiCacheLifecycle",
    "IllegalTransition",
    "Line",
    "Listener",
    "Log",
    "LogError",
    "Monitor",
    "NullExecutor",
    "Past",
    "Settings",
    "TruncatedLog",
    "Undo",
    "Violation",
    "WriteCompletion",
    "read_log",
]
