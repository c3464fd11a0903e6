"""The commands."""

from hicache_fsm.cli.app import main

__all__ = ["main"]
