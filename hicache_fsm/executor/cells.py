"""Every effect under every fault, on real pools: what happens, and whether anything is left or wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from hicache_fsm.executor.device import Layout
from hicache_fsm.executor.errors import StillUnderIoError
from hicache_fsm.executor.rig import CHAIN, LOADER, NODE, PlantedError, Rig, When
from hicache_fsm.executor.torchpools import TorchPools
from hicache_fsm.runtime import IllegalTransition
from hicache_fsm.spec import Spec, load_spec

Fault = Literal["raise before", "raise after", "storage error", "slow I/O", "abort during"]
FAULTS: tuple[Fault, ...] = ("raise before", "raise after", "storage error", "slow I/O", "abort during")
LEDGER_ONLY: Final = frozenset(
    {
        *("raise_marker", "raise_immediate", "lower_marker", "start_wait", "count_pass"),
        *("spend", "spend_unasked", "hold_answer", "count_holder", "drop_holder"),
        *("pin_anchor", "unpin", "yield_pin"),
    }
)
"""Effects of the spec without a row: they touch no pool.  The last three are events of the pin machine."""
Step = Callable[[Rig], object]


@dataclass(frozen=True, slots=True)
class Scenario:
    """How to bring one effect about.

    `act` is the event whose effect it is; `prepare` leads up to it; `lend` starts I/O, on threads that are
    held, which the effect then has to wait for. `abort` is what cuts in, or comes instead of a second try;
    `subject` whose state tells the outcome; `acquires` whether the effect has an undo; `give_up` whether another
    event may follow a failed try (a half-freed node must be tried again, #36637). `held` is another way to
    the effect, one that meets I/O under way.
    """

    prepare: Step
    act: Step
    subject: Callable[[Rig], str] = lambda rig: rig.state
    lend: Step = lambda rig: None
    abort: Step = lambda rig: rig.leave()
    acquires: bool = False
    give_up: bool = True
    held: "Scenario | None" = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One effect under one fault: the outcome in words, and what was left or wrong, one line each."""

    effect: str
    fault: Fault
    outcome: str
    problems: tuple[str, ...]


def _planted(rig: Rig) -> None:
    rig.plant()


def _stored(rig: Rig) -> None:
    rig.plant()
    rig.store_chain()


def _stored_beside(rig: Rig) -> None:
    _stored(rig)
    rig.pin_beside()


def _asked(rig: Rig) -> None:
    _stored(rig)
    rig.life.issue(rig.key, anchor=rig.anchor)
    rig.settle()


def _unanswerable(rig: Rig) -> None:
    rig.plant()
    rig.life.issue(rig.key, anchor=rig.anchor)
    rig.settle()


def _unanswerable_beside(rig: Rig) -> None:
    _unanswerable(rig)
    rig.pin_beside()


def _read(rig: Rig) -> None:
    _stored(rig)
    rig.transfer()
    rig.settle()


def _unreadable(rig: Rig) -> None:
    _stored(rig)
    rig.ask()
    rig.settle()
    rig.store.broken = True
    rig.life.begin_pass()
    rig.settle()
    rig.store.broken = False


def _reading(rig: Rig) -> None:
    """Two pages of four are read, the third is held."""
    _stored(rig)
    rig.store.reads = 2 * len(rig.pools.parts)
    rig.transfer_held()


def _orphaned(rig: Rig) -> None:
    _reading(rig)
    rig.life.abort(rig.key)
    rig.resume()
    rig.settle()


def _loaded(rig: Rig) -> None:
    _stored(rig)
    rig.load()


def _seated(rig: Rig) -> None:
    """No node has the rows, so that they are the hold's."""
    rig.store_chain()
    rig.load()
    rig.pools.seat(rig.key, len(CHAIN) * rig.pools.sizes.page_size)


def _written(rig: Rig) -> None:
    rig.plant()
    _write(rig)
    rig.settle()


def _evicted(rig: Rig) -> None:
    rig.plant()
    rig.pools.keep_on_host(NODE)
    rig.settle()
    rig.life.evict(NODE)
    # its rows are left in no slot that a load-back may get
    rig.poison()
    rig.unpoison()


def _loading(rig: Rig) -> None:
    _evicted(rig)
    rig.life.load(NODE, LOADER)
    rig.settle()


def _tombstoned(rig: Rig) -> None:
    rig.plant()
    rig.life.tombstone(NODE)


def _write(rig: Rig) -> object:
    return rig.life.write(rig.part, CHAIN)


def _load(rig: Rig) -> object:
    return rig.life.load(NODE, LOADER)


def _loaded_back(rig: Rig) -> object:
    return rig.life.loaded_back(NODE, LOADER)


def _next_pass(rig: Rig) -> object:
    return rig.life.begin_pass()


def _evict(rig: Rig) -> object:
    return rig.life.evict(NODE)


def _flush(rig: Rig) -> None:
    rig.life.flush()


def _cut(rig: Rig) -> object:
    op = rig.life.operation(rig.key)
    return rig.life.cut(rig.key, rig.pools.read_tokens(op or 0))


def _loaded_early(rig: Rig) -> object:
    op = rig.life.operation(rig.key) or 0
    return rig.life.loaded(rig.key, op, rig.pools.read_tokens(op))


def _failed_early(rig: Rig) -> object:
    return rig.life.failed(rig.key, rig.life.operation(rig.key) or 0)


def _belief(rig: Rig) -> str:
    return rig.life.beliefs.state(rig.part, CHAIN[0])


def _node(rig: Rig) -> str:
    return rig.node_state


SCENARIOS: Mapping[str, Scenario] = {
    "ask": Scenario(_stored, lambda rig: rig.life.issue(rig.key, anchor=rig.anchor), acquires=True),
    "take_pages": Scenario(_asked, _next_pass, acquires=True),
    "end_operation": Scenario(
        _unanswerable,
        _next_pass,
        held=Scenario(_stored, lambda rig: rig.life.revoke(rig.key), lend=lambda rig: rig.ask()),
    ),
    "stage_hold": Scenario(_read, _next_pass, held=Scenario(_reading, _loaded_early)),
    "free_pages": Scenario(_unreadable, _next_pass, held=Scenario(_reading, _failed_early)),
    "orphan_operation": Scenario(_reading, lambda rig: rig.life.abort(rig.key), abort=_flush),
    "cut_operation": Scenario(_reading, _cut),
    "free_orphan_pages": Scenario(_orphaned, _next_pass, abort=_flush),
    "consume_hold": Scenario(_seated, lambda rig: rig.admit()),
    "release_hold": Scenario(_loaded, lambda rig: rig.life.abort(rig.key), abort=_flush),
    "lock_anchor": Scenario(
        _stored_beside, lambda rig: rig.life.issue(rig.key, anchor=rig.anchor), acquires=True
    ),
    "unlock_anchor": Scenario(_unanswerable_beside, _next_pass),
    "launch_write": Scenario(_planted, _write, _belief, abort=_flush, acquires=True),
    "settle_write": Scenario(
        _written, _next_pass, _belief, abort=_flush, held=Scenario(_planted, _flush, _belief, lend=_write)
    ),
    "claim": Scenario(_evicted, _load, _node, acquires=True),
    "unclaim": Scenario(
        _loading, _loaded_back, _node, held=Scenario(_evicted, _loaded_back, _node, lend=_load)
    ),
    "free_swa": Scenario(
        _planted,
        lambda rig: rig.life.tombstone(NODE),
        _node,
        lend=lambda rig: rig.pools.keep_on_host(NODE),
        give_up=False,
    ),
    "free_both": Scenario(_planted, _evict, _node, lend=_write),
    "free_full": Scenario(_tombstoned, _evict, _node, lend=_write),
}


def run_cell(
    effect: str,
    fault: Fault,
    pools: type[TorchPools] = TorchPools,
    spec: Spec | None = None,
    layout: Layout = "hybrid",
) -> Cell:
    """Bring the effect about under the fault, end everything, and look."""
    scenario = SCENARIOS[effect]
    made = partial(Rig, load_spec() if spec is None else spec, pools, layout)
    match fault:
        case "raise before" | "raise after":
            when: When = "before" if fault == "raise before" else "after"
            retried, problems = _raised(effect, scenario, when, made, scenario.act)
            if scenario.give_up:
                problems += _raised(effect, scenario, when, made, scenario.abort)[1]
            return Cell(effect, fault, retried, tuple(problems))
        case "storage error":
            return Cell(effect, fault, *_with_broken_storage(scenario, made))
        case "slow I/O":
            return Cell(effect, fault, *_with_held_io(scenario.held or scenario, made, cut_in=None))
        case "abort during":
            held = scenario.held or scenario
            return Cell(effect, fault, *_with_held_io(held, made, cut_in=held.abort))


def run_all(pools: type[TorchPools] = TorchPools) -> list[Cell]:
    """Every effect under every fault."""
    spec = load_spec()
    return [run_cell(effect, fault, pools, spec) for effect in SCENARIOS for fault in FAULTS]


def _raised(
    effect: str, scenario: Scenario, when: When, made: Callable[[], Rig], then: Step
) -> tuple[str, list[str]]:
    """The effect raises once; what comes next is `then`: the event again, or an abort."""
    with made() as rig:
        scenario.prepare(rig)
        problems = []
        state, books, owned = scenario.subject(rig), rig.books(), rig.owned()
        rig.executor.armed = effect, when
        try:
            scenario.act(rig)
            problems.append(f"{effect} was not reached")
        except PlantedError:
            pass
        rig.executor.armed = None
        if rig.books() != books:
            problems.append(f"the books changed although {effect} raised: {books} to {rig.books()}")
        if scenario.acquires or when == "before":
            if rig.io_may_end:
                rig.settle()
            if rig.owned() != owned:
                problems.append(f"{effect} raised and the pools own {rig.owned()}, not {owned} as before")
            problems += rig.pools.disagreements(rig.life) + rig.wrong()
        problems += _tried(rig, then)
        return f"stays {state}", problems + _ended(rig)


def _with_broken_storage(scenario: Scenario, made: Callable[[], Rig]) -> tuple[str, tuple[str, ...]]:
    with made() as rig:
        scenario.prepare(rig)
        rig.store.broken = True
        problems = _tried(rig, scenario.act)
        rig.resume()
        problems += _tried(rig, Rig.step)
        state, failed = scenario.subject(rig), rig.store.failures
        problems += rig.pools.disagreements(rig.life) + rig.wrong()
        rig.store.broken = False
        outcome = f"{state}; calls failed: {failed}" if failed else f"{state}; no call"
        return outcome, (*problems, *_ended(rig))


def _with_held_io(
    scenario: Scenario, made: Callable[[], Rig], cut_in: Step | None
) -> tuple[str, tuple[str, ...]]:
    """I/O that begins with or after `lend` is held; every free slot is poisoned meanwhile."""
    with made() as rig:
        scenario.prepare(rig)
        rig.pause()
        scenario.lend(rig)
        problems = _tried(rig, scenario.act)
        refused = any(problem.startswith(StillUnderIoError.__name__) for problem in problems)
        if refused:
            problems.clear()
        if cut_in is not None:
            cut_in(rig)
        state, waiting = scenario.subject(rig), rig.under_io()
        problems += rig.pools.disagreements(rig.life) + rig.wrong()
        rig.poison()
        rig.resume()
        problems += _tried(rig, Rig.settle)
        problems += rig.unpoison()
        outcome = f"{state}; slots under I/O: {waiting}{'; refused until then' * refused}"
        return outcome, (*problems, *_ended(rig))


def _tried(rig: Rig, step: Step) -> list[str]:
    """Take the step; what pools or lifecycle say against it is a problem of the cell."""
    try:
        step(rig)
    except (RuntimeError, MemoryError, IllegalTransition) as broken:
        return [f"{type(broken).__name__}: {broken}"]
    return []


def _ended(rig: Rig) -> list[str]:
    left: list[str] = []
    return _tried(rig, lambda rig: left.extend(rig.end())) + left
