"""What a node, a prefetch or a hold has in each pool: the KV pool, and those beside it (SWA, states)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

KV = "kv"
"""The pool that every engine has, by the name of SGLang's ``PoolName``."""


def pool_name(name: Any) -> str:
    """The name of a pool as SGLang's storage has it: ``kv``, ``swa``, ``mamba``, ..."""
    return str(getattr(name, "value", name))


def beside(transfers: Iterable[Any] | None) -> Iterator[tuple[str, Any]]:
    """Host slots of transfers of the pools beside the KV pool, by pool name.

    A transfer that is derived from another pool rides on that one's slots and owns none.
    """
    for transfer in transfers or ():
        if transfer.host_indices is not None and getattr(transfer, "indices_from_pool", None) is None:
            yield pool_name(transfer.name), transfer.host_indices


@dataclass(frozen=True, slots=True)
class Side:
    """What a tree node has in one pool; slots are int64 tensors or None."""

    pool: str
    device_indices: Any
    host_indices: Any
    host_locks: int


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A tree node as far as memory goes; ``claim`` is the load-back that has it, or None."""

    name: str
    sides: tuple[Side, ...]
    claim: Any


def tree_nodes(tree: Any) -> Iterator[TreeNode]:
    """All nodes, where the tree is the Python one; nothing where it is compiled and cannot be walked."""
    collect = getattr(tree.tree_core, "_collect_all_nodes", None)
    kinds = [(kind, KV if int(kind) == 0 else kind.name.lower()) for kind in tree.tree_components]
    for node in () if collect is None else collect():
        parts = [(pool, node.component_data[kind]) for kind, pool in kinds]
        sides = [Side(pool, part.value, part.host_value, int(part.host_lock_ref)) for pool, part in parts]
        yield TreeNode(str(node.id), tuple(sides), getattr(node, "load_back_pending_id", None))
