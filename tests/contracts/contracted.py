"""Contracts on rules that no single function states, for CrossHair: each returns whether it holds."""

from hicache_fsm.machine.compiled import CompiledMachine
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.rules import anchor_cap, invalidate_beyond, keep_pages
from hicache_fsm.spec import Effect, Event, Guard, Literal, Machine, State, Transition


def leaves_headroom(pool: int, context: int, slack: int) -> bool:
    """A pin cap of the whole pool leaves the context and the slack free, unless it is 0.

    pre: 0 <= pool < 2**53 and context > 0 and slack >= 0
    post: _
    """
    cap = anchor_cap(1, pool, context, slack)
    return cap == 0 or cap + context + slack <= pool


def dropped(first: int, second: int, keep: int) -> bool:
    """A discard drops exactly the beliefs in pages that were not kept.

    pre: 0 <= keep <= 2
    post: _
    """
    chain = [first, second]
    gone = invalidate_beyond({first, second}, chain, keep)
    return all((page in gone) == (page in chain[keep:]) for page in chain)


def served(completed: int, chain: int, keys: int, hit: int, page: int) -> bool:
    """Every page that a discard keeps was delivered by the KV pool, and by the auxiliary one if it keys it.

    pre: 0 <= hit <= keys <= chain and 0 <= completed <= chain
    pre: 0 <= page < chain
    post: _
    """
    first = chain - keys
    delivered = page < completed and (page < first or page - first < hit)
    return delivered or page >= keep_pages(completed, chain, [(keys, hit)])


def round_trip(small: int, signed: int, wide: int, last: int) -> bool:
    """A state comes out of its words as it went in, whatever else is packed beside it.

    pre: 0 <= small <= 2 and -1 <= signed <= 3 and 0 <= wide <= 60 and 0 <= last <= 1
    post: _
    """
    layout = Layout(
        [
            Variable("small", 2, ""),
            Variable("signed", 3, "", low=-1),
            Variable("wide", 60, ""),
            Variable("last", 1, ""),
        ]
    )
    state = {"small": small, "signed": signed, "wide": wide, "last": last}
    return layout.unpack(layout.pack(state)) == state


def decided(state: int, event: int, truth: int) -> bool:
    """The compiled step takes the row of the table whose source, event and guard fit, and no other.

    pre: 0 <= state < 2 and 0 <= event < 2 and 0 <= truth < 4
    post: _
    """
    rows = (
        Transition(0, "push", "shut", "open", (Literal("locked", False),)),
        Transition(1, "push", "shut", "shut", (Literal("locked", True), Literal("strong", False))),
        Transition(2, "push", "shut", "open", (Literal("locked", True), Literal("strong", True))),
        Transition(3, "pull", "open", "shut"),
    )
    machine = Machine(
        "door",
        "A door.",
        ("house",),
        "shut",
        {name: State(name, "") for name in ("shut", "open")},
        {name: Event(name, "", "client") for name in ("push", "pull")},
        {name: Guard(name, "", "fact") for name in ("locked", "strong")},
        {"creak": Effect("creak", "")},
        rows,
    )
    taken = CompiledMachine(machine).decide(state, event, truth)
    holding = {name for bit, name in enumerate(("locked", "strong")) if truth & (1 << bit)}
    fitting = [
        row
        for row in rows
        if (row.source, row.event) == (("shut", "open")[state], ("push", "pull")[event])
        and all((literal.guard in holding) == literal.positive for literal in row.guard)
    ]
    return ([] if taken is None else [taken.transition]) == fitting
