"""TLC, the TLA+ model checker: found, run and read; behind the extra `tlc`."""

from hicache_fsm.tlc.errors import TlcError
from hicache_fsm.tlc.locate import Tools, locate, tla_dir
from hicache_fsm.tlc.run import Job, Outcome, run

__all__ = ["Job", "Outcome", "TlcError", "Tools", "locate", "run", "tla_dir"]
