"""A prompt whose head is in the tree, and one whose head is not, in an idle engine with a small window pool.

Runs inside `.sglang/env`: ``window_wedge.py [--no-hicache]``. Prints the pass on which each was admitted, or None.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
from pathlib import Path

from hicache_fsm.sglang.harness.stepped import SteppedScheduler
from hicache_fsm.sglang.settings import EngineSettings

HEAD = list(range(3, 51))
TAIL = list(range(100, 282))
PASSES = 500


def main(*arguments: str) -> None:
    logging.disable(logging.ERROR)
    hicache = "--no-hicache" not in arguments
    overrides = {} if hicache else {"enable_hierarchical_cache": False, "hicache_storage_backend": None}
    # 204 window slots, a window of 32, prompts of 230 tokens in chunks of up to 512
    settings = EngineSettings(layout="swa", window_share=0.2, latency=None)
    with tempfile.TemporaryDirectory() as folder:
        engine = SteppedScheduler(settings, Path(folder), plugins=False, overrides=overrides)
        engine.submit("head", HEAD, max_new_tokens=2)
        engine.drain()
        admitted = {}
        for rid, prompt in (("known head", [*HEAD, *TAIL]), ("unknown head", [2, *HEAD[1:], *TAIL])):
            engine.submit(rid, prompt, max_new_tokens=15)
            for number in range(PASSES):
                if engine.step() == [rid]:
                    admitted[rid] = number
                    break
            engine.abort(rid)
            for _ in range(20):
                engine.step()
        print(
            "RESULT " + json.dumps({rid: admitted.get(rid) for rid in ("unknown head", "known head")}),
            flush=True,
        )
        if hicache:
            engine.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
