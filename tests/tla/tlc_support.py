"""A small module for TLC to chew on."""

from pathlib import Path
from typing import Any

from hicache_fsm.tlc import Job

COUNTER = """---- MODULE Counter ----
EXTENDS Naturals
VARIABLES x, f
Init == x = 0 /\\ f = [r \\in {"r0", "r1"} |-> "idle"]
Inc == x < 3 /\\ x' = x + 1 /\\ UNCHANGED f
Go(r) == f[r] = "idle" /\\ f' = [f EXCEPT ![r] = "busy"] /\\ UNCHANGED x
Flip == x = 3 /\\ x' = 2 /\\ UNCHANGED f
Next == Inc \\/ \\E r \\in {"r0", "r1"} : Go(r)
Spec == Init /\\ [][Next]_<<x, f>>
Restless == Init /\\ [][Next \\/ Flip]_<<x, f>> /\\ WF_<<x, f>>(Next)
Small == x < 3
Grows == [][x' = x]_x
Busy == <>(f["r0"] = "busy")
====
"""


def job(folder: Path, cfg: str, **more: Any) -> Job:
    """A job on the small module with this cfg."""
    (folder / "Counter.cfg").write_text(cfg)
    return Job(folder, "Counter", "Counter.cfg", **more)
