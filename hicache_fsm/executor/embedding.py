"""What every scheduler on torch pools does with its lifecycle: make room for a request, and end."""

from typing import Final

from hicache_fsm.executor.torchpools import TorchPools
from hicache_fsm.runtime import AttemptKey, HiCacheLifecycle
from hicache_fsm.runtime.attempt import Node

IN_FLIGHT: Final = ("probing", "retrying", "parked", "transferring")
"""States that wait for storage: such a request is not admitted before it is answered, cut or aborted."""


def evict(life: HiCacheLifecycle, pools: TorchPools, node: Node) -> list[AttemptKey]:
    """The node leaves the device.  Returns the attempts that have nothing to follow then.

    Their questions are given up, their reads cut, their holds go back, and `begin_pass` has them ask again. Raises
    IllegalTransition for a node that is pinned or being loaded, and what an effect raises; whom this has not
    told then, the next call tells, of `make_room` too.
    """
    life.evict(node)
    return _tell_lost(life, pools)


def make_room(life: HiCacheLifecycle, pools: TorchPools, tokens: int) -> bool:
    """Evict nodes, the longest unused first, until a seat of so many tokens is free.  False if none is.

    Raises what an effect raises.
    """
    _tell_lost(life, pools)
    for node in pools.evictable():
        if pools.device.free_tokens >= tokens:
            break
        evict(life, pools, node)
    return pools.device.free_tokens >= tokens


def _tell_lost(life: HiCacheLifecycle, pools: TorchPools) -> list[AttemptKey]:
    pools.lost.update(dict.fromkeys(pools.stranded()))
    told = list(pools.lost)
    for key in told:
        state = life.state(key)
        if state in ("probing", "retrying", "parked"):
            life.lose_anchor(key)
        elif state == "transferring":
            life.cut(key)
        if state not in ("scheduled", "aborted", None):
            life.shrink(key)
        del pools.lost[key]
    return told


def shut_down(life: HiCacheLifecycle, pools: TorchPools) -> list[str]:
    """End once all requests have left: I/O ends, nodes go, threads stop.

    Returns what is left then or wrong, one line each.
    """
    pools.drain(wait=True)
    life.begin_pass()
    for node in pools.nodes():
        pools.drop_from_host(node)
    for node in pools.evictable():
        evict(life, pools, node)
    left = pools.disagreements(life)
    if not pools.empty:
        left.append("slots are not free at the end")
    if not life.idle:
        left.append("the lifecycle is not idle at the end")
    pools.close()
    return left
