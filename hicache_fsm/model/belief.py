"""Beliefs about a chain of pages in two pools: KV, and an auxiliary one keyed by its trailing pages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from hicache_fsm.model.build import actions, start
from hicache_fsm.model.expr import FALSE, TRUE, Expr, all_of, truth
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action, Goal, StepCheck, System
from hicache_fsm.model.tables import Changes, Meaning, Path, Tables, View, label
from hicache_fsm.rules import keep_pages
from hicache_fsm.spec.types import Constants, Machine, Spec

OWN = frozenset({"write", "stored", "ask", "fetch", "done", "discard"})
"""What the system and a storage that keeps what it has do: all that heals may count on."""

LOST = frozenset({"clear", "detach"})
"""Storage is empty afterwards."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A belief system's bounds: pages of the chain, and how many trailing ones the auxiliary pool keys."""

    chain: int
    trailing: int

    @property
    def pages(self) -> list[tuple[str, int]]:
        """Every (pool, page of the chain)."""
        return [("kv", p) for p in range(self.chain)] + [
            ("aux", p) for p in range(self.chain - self.trailing, self.chain)
        ]


def belief_system(spec: Spec, profile: str, name: str, configuration: str, scope: Scope) -> System:
    """Writes, questions, fetches and losses of the chain's pages, and what buffer mode believes of them."""
    machine = spec.machines["belief"]
    layout = Layout(_variables(scope, machine))
    begin = start(layout)
    tables = Tables({"belief": belief_meaning(spec.profiles[profile].constants, machine)})
    steps = _Steps(scope, tables, layout, begin)
    checks = _Checks(scope, machine, begin)
    return System(
        name,
        configuration,
        profile,
        layout,
        {variable.name: 0 for variable in layout.variables},
        tuple(steps.all()),
        (),
        (StepCheck("belief-evidence", checks.evidence),),
        (checks.healed(),),
    )


def _instance(pool: str, page: int) -> str:
    return f"{pool}{page}"


def _variables(scope: Scope, machine: Machine) -> Iterator[Variable]:
    for pool, page in scope.pages:
        who, states = _instance(pool, page), tuple(machine.states)
        yield Variable(f"{who}.state", len(states) - 1, "What is believed of the page.", names=states)
        yield Variable(f"{who}.stored", 1, "Storage holds the page.")
    yield Variable("fetching", 1, "A fetch of the whole chain is in flight.")


def belief_meaning(rules: Constants, machine: Machine) -> Meaning:
    """What the names of the belief table mean for one page; `keep` is a parameter of the step."""
    codes = {state: code for code, state in enumerate(machine.states)}
    return Meaning(
        machine,
        lambda view, state: view["state"].eq(codes[state]),
        lambda view, source, dest: {"state": codes[dest]},
        {
            "kept": lambda view: truth(int(view.instance[-1]) < view.parameters["keep"]),
            "believes_failed": lambda view: truth(rules.believes_failed),
            "forgets_detached": lambda view: truth(rules.forgets_detached),
        },
        # Writing is a state; the effects start and end I/O that the system has no variable for.
        {"launch_write": (), "settle_write": ()},
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    scope: Scope
    tables: Tables
    layout: Layout
    begin: Path

    def all(self) -> Iterator[Action]:
        for subject, (pool, page) in enumerate(self.scope.pages):
            yield from self._page(subject, View(self.begin, _instance(pool, page)))
        yield from self._question()
        yield from self._fetch()
        for event in ("clear", "detach", "reset"):
            yield from self._storage(event)

    def _page(self, subject: int, view: View) -> Iterator[Action]:
        """A page is offered, written, forgotten, or lost by storage."""
        yield from self._row("write", subject, view, {})
        yield from self._row("stored", subject, view, {"stored": 1})
        yield from self._row("write_failed", subject, view, {})
        yield from self._row("overflow", subject, view, {})
        gone = view.change({"stored": 0}).assuming(view["stored"].eq(1))
        yield from actions(self.layout, f"storage loses {view.instance}", "lose", subject, [gone])

    def _row(self, event: str, subject: int, view: View, truths: Changes) -> Iterator[Action]:
        for row in self.tables.meanings["belief"].machine.transitions:
            if row.event == event:
                after = self.tables.take(view.change(truths), "belief", [row])
                text = f"belief.{label(row, view.instance)}"
                yield from actions(self.layout, text, event, subject, after, row.effects)

    def _question(self) -> Iterator[Action]:
        """A question speaks of the KV pages: confirms the leading stored ones, denies the rest."""
        values, chain = self.begin.values, self.scope.chain
        for hit in range(chain + 1):
            leads = all_of(values[f"kv{p}.stored"].eq(1) for p in range(hit))
            ends = values[f"kv{hit}.stored"].eq(0) if hit < chain else TRUE
            sent = {f"kv{p}": "confirm" if p < hit else "deny" for p in range(chain)}
            yield from self._chain(f"ask: {hit} pages", "ask", leads & ends, sent, {}, {})

    def _fetch(self) -> Iterator[Action]:
        """A fetch reads leading KV pages and auxiliary keys that storage has, all of them or not."""
        values, scope = self.begin.values, self.scope
        idle = values["fetching"].eq(0)
        started = View(self.begin, "chain").assuming(idle).change({"fetching": 1})
        yield from actions(self.layout, "fetch", "fetch", -1, [started])
        first = scope.chain - scope.trailing
        for done, hit in product(range(scope.chain + 1), range(scope.trailing + 1)):
            served = all_of(values[f"kv{p}.stored"].eq(1) for p in range(done))
            served = served & all_of(values[f"aux{first + p}.stored"].eq(1) for p in range(hit))
            whole = (done, hit) == (scope.chain, scope.trailing)
            keep = keep_pages(done, scope.chain, [(scope.trailing, hit)])
            text = f"fetch ends: {done} KV pages, {hit} auxiliary"
            yield from self._chain(
                text,
                "done" if whole else "discard",
                served & ~idle,
                self._to_all("confirm" if whole else "discard"),
                {"done": done, "hit": hit, "keep": keep},
                {"fetching": 0},
            )

    def _storage(self, event: str) -> Iterator[Action]:
        """Something happens to the storage or the cache as a whole."""
        lost = {f"{_instance(*page)}.stored": 0 for page in self.scope.pages} if event in LOST else {}
        yield from self._chain(event, event, TRUE, self._to_all(event), {}, lost)

    def _to_all(self, event: str) -> dict[str, str]:
        return {_instance(*page): event for page in self.scope.pages}

    def _chain(
        self,
        text: str,
        event: str,
        happens: Expr,
        sent: Mapping[str, str],
        chosen: Mapping[str, int],
        changes: Changes,
    ) -> Iterator[Action]:
        """One step that sends pages of the chain their events; `chosen` is what the environment chose."""
        views = [View(self.begin, "chain", chosen).assuming(happens).change(changes)]
        for instance, each in sent.items():
            views = [
                after
                for view in views
                for after in self.tables.fire(replace(view, instance=instance), "belief", each)
            ]
        yield from actions(self.layout, text, event, -1, views)


@dataclass(frozen=True, slots=True)
class _Checks:
    scope: Scope
    machine: Machine
    begin: Path

    def evidence(self, action: Action, post: Mapping[str, Expr]) -> Expr:
        """Nothing is believed afterwards that the step has just contradicted."""
        return all_of(
            ~self._believed(post, pool, page) | self._supported(action, post, subject, pool, page)
            for subject, (pool, page) in enumerate(self.scope.pages)
        )

    def healed(self) -> Goal:
        """Every page of the chain is stored and believed."""
        values = self.begin.values
        whole = all_of(
            values[f"{_instance(pool, page)}.stored"].eq(1) & self._believed(values, pool, page)
            for pool, page in self.scope.pages
        )
        return Goal("heals", "every page is stored and believed", TRUE, whole, lambda a: a.event in OWN)

    def _believed(self, values: Mapping[str, Expr], pool: str, page: int) -> Expr:
        return values[f"{_instance(pool, page)}.state"].eq(list(self.machine.states).index("believed"))

    def _supported(
        self, action: Action, post: Mapping[str, Expr], subject: int, pool: str, page: int
    ) -> Expr:
        """Whether the step leaves room for believing the page."""
        chosen = action.parameters or {}
        match action.event:
            case "write_failed":
                return truth(action.subject != subject) | post[f"{_instance(pool, page)}.stored"].eq(1)
            case "discard":
                first = self.scope.chain - self.scope.trailing
                served = page < chosen["done"] if pool == "kv" else page - first < chosen["hit"]
                return truth(served)
            case "clear" | "detach":
                return FALSE
        return TRUE
