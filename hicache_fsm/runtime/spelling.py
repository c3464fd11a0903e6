"""How the event log spells what happened (docs/event-log.md).

What happened is kept as a record, a tuple of plain values, and spelled when it is written: a log in memory spells
only what somebody wants to see. Texts that many lines share come spelled: their pass (`at`), their
attempt.
"""

from collections.abc import Callable
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from hicache_fsm.machine import CompiledMachine

Record = tuple[Any, ...]
"""The function that spells it as a line, and its values."""

Spell = Callable[[int, Record], str]
"""Line number `seq` of a record, whole."""

text: Final = encode_basestring_ascii
"""A string as JSON."""

BOOL: Final = ("false", "true")


def plain(seq: int, record: Record) -> str:
    """(plain, the line's members as JSON text without the braces)."""
    return f'{{"seq":{seq},{record[1]}}}\n'


def illegal(seq: int, record: Record) -> str:
    """(illegal, at, machine, event, attempt or nothing)."""
    _, at, machine, event, tag = record
    return f'{{"seq":{seq},{at}"machine":"{machine}","event":"{event}"{tag},"illegal":true}}\n'


def operation(seq: int, record: Record) -> str:
    """(operation, at, event, attempt, op)."""
    _, at, event, tag, op = record
    return f'{{"seq":{seq},{at}"machine":"operation","event":"{event}",{tag},"op":{op}}}\n'


def pinned(seq: int, record: Record) -> str:
    """(pinned, at, attempt, anchored, tokens, why, pinned tokens)."""
    _, at, tag, anchored, tokens, why, total = record
    return (
        f'{{"seq":{seq},{at}"machine":"pin","event":"pin",{tag},"facts":{{"anchored":{BOOL[anchored]}}},'
        f'"tokens":{tokens},"why":"{why}","seen":{{"pinned_tokens":{total}}}}}\n'
    )


def unpinned(seq: int, record: Record) -> str:
    """(unpinned, at, event, attempt, tokens, pinned tokens)."""
    _, at, event, tag, tokens, total = record
    return (
        f'{{"seq":{seq},{at}"machine":"pin","event":"{event}",{tag},"tokens":{tokens},'
        f'"seen":{{"pinned_tokens":{total}}}}}\n'
    )


def node(seq: int, record: Record) -> str:
    """(node, at, event, node, tokens)."""
    _, at, event, name, tokens = record
    return f'{{"seq":{seq},{at}"machine":"node","event":"{event}","node":{text(name)},"tokens":{tokens}}}\n'


def believed(seq: int, record: Record) -> str:
    """(believed, at, event, pool, pages, pages kept or None)."""
    _, at, event, pool, pages, keep = record
    more = "" if keep is None else f',"keep_pages":{keep}'
    about = f'"machine":"belief","event":"{event}","pool":{text(pool)}'
    return f'{{"seq":{seq},{at}{about},"pages":{pages}{more}}}\n'


def prefetch(table: CompiledMachine, page_size: int) -> Spell:
    """Spells the lines of attempts, with what the books say of the attempt and the engine's totals.

    A record is (this; at, machine and event, attempt, facts, op, why, tokens, wanted; whether it has an operation,
    its marker, state, hold, spent; pinned tokens, occupied pages). As one text, for speed: nearly every line is
    one of these.
    """
    parked, pending = table.state_ids["parked"], table.state_ids["pending"]

    def spell(seq: int, record: Record) -> str:
        _, at, event, tag, facts, op, why, tokens, wanted, entry, marker, state, hold, spent, pins, pages = (
            record
        )
        about = f',"tokens":{tokens}' if tokens else ""
        if wanted:
            about += f',"wanted_tokens":{wanted}'
        if why:
            about = f',"why":"{why}"{about}'
        if op:
            about = f',"op":{op}{about}'
        return (
            f'{{"seq":{seq},{at}{event}{tag}{facts}{about},"seen":{{"entry":{"true" if entry else "false"},'
            f'"armed":{"true" if marker or state == pending else "false"},'
            f'"hold":{"true" if hold else "false"},"spent":{spent},'
            f'"parked":{"true" if state == parked else "false"},'
            f'"pinned_tokens":{pins},"occupied_tokens":{pages * page_size}}}}}\n'
        )

    return spell
