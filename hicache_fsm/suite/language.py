"""The words that drive a cache under test: what each takes, and one line of a sequence read or written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal

from hicache_fsm.suite.protocol import Event

Takes = Literal["request", "pages", "none"]

NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
ANY: Final = re.compile(r"[\w.-]+")
COUNT: Final = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Word:
    """One event: whom it concerns, what else it takes, and who brings it about.

    `takes` are its subjects: requests, pages, or nothing. `amount` is what its number counts, empty where it takes
    none. `facts` are its named values; a pattern says what each may be. `told` words say what the cache decides by
    itself, so a target answers them with seen or absent; the others are driven.
    """

    about: str
    takes: Takes = "request"
    node: bool = False
    amount: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    told: bool = False


QUESTION: Final = {"q": r"[1-9]\d*", "rank": r"\d+"}
LOADER: Final = {"by": r"\w+"}

WORDS: Final[Mapping[str, Word]] = {
    "enq": Word("r joins the queue and asks storage, if it may", facts={"why": "too_short|rate_limited|aux_alloc"}),
    "issue": Word("a question for r went out", told=True),
    "reissue": Word("a question for r went out again", told=True),
    "admit": Word("the scheduler comes to r and admits it, if it can"),
    "finish": Word("running r is done"),
    "retract": Word("running r goes back to the queue", facts={"why": "retracted|preempted|paused|requeued"}),
    "abort": Word(
        "r leaves the queue unadmitted", facts={"why": "client|queue_limit|priority|timeout|bootstrap|session"}
    ),
    "abandon": Word("r leaves by the over-capacity door of a disaggregated prefill"),
    "hit": Word(
        "storage has the first pages of r's span", amount="pages (all that are stored)",
        facts={**QUESTION, "room": "no", "why": "rate_limited|pin_cap|host_capacity|turn"},
    ),
    "miss": Word("storage has too little for r", facts={**QUESTION, "why": "below_threshold|absent|terminated"}),
    "xfer": Word("pages of r have arrived in host memory", amount="pages"),
    "done": Word("r's read ended, usable", amount="pages (all)", facts=QUESTION),
    "fail": Word("r's read ended, useless", facts={**QUESTION, "why": "read_error|nothing_usable"}),
    "discard": Word(
        "r's read ended, and some pool came up short", amount="pages that every pool served (0)", facts=QUESTION
    ),
    "answer": Word("whatever storage owes r, it answers truthfully", facts=QUESTION),
    "park": Word("r's hit waits for room", told=True),
    "alloc": Word("r's host pages were taken; a parked hit has its turn"),
    "stage": Word("r's pages are a hold", told=True),
    "consume": Word("r's hold is being copied to the device", told=True),
    "ack": Word("the copy to the device was acknowledged"),
    "lose": Word("r lost its base on the device: known hit, hold or match", told=True),
    "revoke": Word("r's known hit or hold is dropped", facts={"why": "device_covered|oversize|unservable"}),
    "pin": Word("r's base is pinned", told=True),
    "unpin": Word("r's base is not pinned", told=True),
    "cut": Word("the stop policy ends r's wait", amount="pages read (0)"),
    "expire": Word("r's deadline passes", amount="pages read (0)"),
    "insert": Word("the device holds these pages, each below the one before", takes="pages"),
    "evict": Word("the node and what hangs below it leave the device", takes="none", node=True),
    "split": Word("the node is split there", takes="none", node=True),
    "load": Word("a load-back claims the node", takes="none", node=True, facts=LOADER),
    "loaded": Word("the load-back's copy was acknowledged", takes="none", node=True, facts=LOADER),
    "tombstone": Word("the node leaves the sliding window", takes="none", node=True),
    "write": Word("an insert offers pages for writing", takes="pages"),
    "wack": Word("the write of pages was acknowledged", takes="pages", facts={"ok": "yes|no"}),
    "store": Word("storage has these pages, by whatever way", takes="pages"),
    "drop": Word("storage loses these pages and says nothing", takes="pages"),
    "clear": Word("storage is cleared", takes="none"),
    "detach": Word("the backend is detached", takes="none"),
    "attach": Word("an empty backend is attached", takes="none"),
    "tick": Word("scheduling passes, none of which admits", takes="none", amount="passes (1)"),
    "settle": Word(
        "storage answers all it owes, copies end, what runs finishes, passes admit whom they can",
        takes="none", amount="passes at most (64)",
    ),
    "flush": Word("the cache is reset under the queue", takes="none"),
    "pause": Word("generation pauses: what runs goes back to the queue", takes="none"),
    "resume": Word("generation goes on", takes="none"),
    "limit": Word("no more than so many host pages may be charged", takes="none", amount="pages"),
}  # fmt: skip


FACTS: Final = {"q": "which question of r, from 1", "rank": "which rank, from 0", "by": "whose load-back"}
"""What facts are that have no list of values."""


class LanguageError(ValueError):
    """A line that is no event; one line, with the mend."""


def parse(line: str) -> Event:
    """The event of one line, as `hit r 2 q=1` or `load @p2 by=a`.  Raises LanguageError."""
    words = line.replace(",", " , ").split()
    if not words:
        raise LanguageError("an empty line is no event")
    name = words[0]
    word = WORDS.get(name)
    if word is None:
        raise LanguageError(f'"{name}" is no event{_suggest(name)}')
    subjects: list[str] = []
    node, amount, facts = "", None, dict[str, str]()
    comma = True
    for each in words[1:]:
        if each == ",":
            if comma or not subjects:
                raise LanguageError(f'"{line}": a comma without a name before it')
            comma = True
            continue
        key, equals, value = each.partition("=")
        if equals:
            facts[key] = _fact(name, word, key, value)
        elif each.startswith("@"):
            node = _node(name, word, node, each[1:])
        elif COUNT.fullmatch(each) and not (word.takes == "pages" and comma):
            amount = _amount(name, word, amount, each)
        elif not (word.takes != "none" and comma and ANY.fullmatch(each)):
            raise LanguageError(f'"{line}": what is "{each}"? names are separated by commas')
        else:
            subjects.append(each)
            comma = False
    if comma and subjects:
        raise LanguageError(f'"{line}": nothing after the comma')
    return _whole(line, word, Event(name, tuple(subjects), node, amount, facts))


def render(event: Event) -> str:
    """The event as one line, which `parse` reads back."""
    parts = [event.name]
    if event.subjects:
        parts.append(", ".join(event.subjects))
    if event.node:
        parts.append(f"@{event.node}")
    if event.amount is not None:
        parts.append(str(event.amount))
    return " ".join([*parts, *(f"{key}={value}" for key, value in event.facts.items())])


def words_table() -> str:
    """The words as a table in Markdown, in the order of WORDS."""
    rows = ["| word | means | facts |", "|---|---|---|"]
    for name, word in WORDS.items():
        subject = {"request": " r", "pages": " p, ...", "none": ""}[word.takes]
        amount = f" [{word.amount}]" if word.amount else ""
        facts = "; ".join(
            f"`{key}=` {FACTS.get(key, pattern.replace('|', ', '))}" for key, pattern in word.facts.items()
        )
        told = " *(told)*" if word.told else ""
        rows.append(
            f"| `{name}{subject}{' @p' if word.node else ''}`{amount} | {word.about}{told} | {facts} |"
        )
    return "\n".join(rows)


def _fact(name: str, word: Word, key: str, value: str) -> str:
    pattern = word.facts.get(key)
    if pattern is None:
        known = ", ".join(word.facts) or "none"
        raise LanguageError(f'"{name}" has no fact "{key}": it takes {known}')
    if not re.fullmatch(pattern, value):
        raise LanguageError(f'"{key}={value}" is nothing that "{name}" knows: {pattern.replace("|", ", ")}')
    return value


def _node(name: str, word: Word, before: str, node: str) -> str:
    if not word.node:
        raise LanguageError(f'"{name}" concerns no node: leave "@{node}" out')
    if before or not ANY.fullmatch(node):
        raise LanguageError(f'"{name}" takes one node, as @p2')
    return node


def _amount(name: str, word: Word, before: int | None, text: str) -> int:
    if not word.amount or before is not None:
        raise LanguageError(f'"{name}" takes {"one number" if word.amount else "no number"}, not "{text}"')
    return int(text)


def _whole(line: str, word: Word, event: Event) -> Event:
    """The event, once nothing that it needs is missing."""
    if word.takes == "request" and len(event.subjects) != 1:
        raise LanguageError(f'"{line}": "{event.name}" concerns one request')
    if word.takes == "pages" and not event.subjects:
        raise LanguageError(f'"{line}": "{event.name}" needs pages')
    if word.node and not event.node:
        raise LanguageError(f'"{line}": "{event.name}" needs a node, as @p2')
    if word.facts.keys() >= {"by"} and "by" not in event.facts:
        raise LanguageError(f'"{line}": say whose load-back it is, as by=a')
    if event.name in ("xfer", "limit") and event.amount is None:
        raise LanguageError(f'"{line}": "{event.name}" needs a number of pages')
    return event


def _suggest(name: str) -> str:
    close = get_close_matches(name, WORDS, n=1)
    return f': did you mean "{close[0]}"?' if close else f": use one of {', '.join(WORDS)}"
