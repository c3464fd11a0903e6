"""Beliefs for chains of any length: one KV page and one auxiliary page, at any place of the chain.

A page's row depends on that page and on what the fetch served, never on another page, so what is proved of
these two, wherever they are, is proved of every page.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from hicache_fsm.model.belief import OWN, belief_meaning
from hicache_fsm.model.build import actions, start
from hicache_fsm.model.expr import FALSE, TRUE, Expr, all_of, maximum, minimum, number, variable, where
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action, StepCheck
from hicache_fsm.model.tables import Changes, Path, Tables, View, label
from hicache_fsm.prove.conjuncts import Conjunct, StepClaim, Theory, WayOn
from hicache_fsm.prove.parametric import Parametric
from hicache_fsm.spec.types import Machine, Spec

PARAMETERS: Mapping[str, str] = {
    "chain": "pages of the chain",
    "trailing": "trailing pages that the auxiliary pool keys",
    "page": "the KV page's place in the chain",
    "key": "the auxiliary page's place among the keys",
    "done": "leading KV pages that the fetch read",
    "hit": "leading auxiliary keys that hit",
    "leading": "leading KV pages that the question found",
}

PAGES = ("kv", "aux")
WHAT = ("state", "stored")


def keep(done: Expr, chain: Expr, keys: Expr, hit: Expr) -> Expr:
    """`rules.keep_pages` for one transfer with keys."""
    return where(hit.lt(keys), minimum(done, maximum(number(0), chain - keys)), done)


def beliefs_for_all(spec: Spec, profile: str) -> tuple[Parametric, Theory]:
    """The belief machine for chains of any length, and the theory of belief-evidence."""
    machine = spec.machines["belief"]
    layout = Layout(_variables(machine))
    meaning = belief_meaning(spec.profiles[profile].constants, machine)
    guards = {**meaning.guards, "kept": lambda view: _place(view.instance).lt(view["keep"])}
    steps = _Steps(Tables({"belief": replace(meaning, guards=guards)}), layout, _begin(layout))
    chain, trailing = variable("chain"), variable("trailing")
    assumptions = (
        *(variable(name).ge(0) for name in PARAMETERS),
        trailing.le(chain),
        variable("page").lt(chain),
        variable("key").lt(trailing),
        variable("done").le(chain),
        variable("hit").le(trailing),
    )
    claims = (
        StepCheck("belief-evidence", _Evidence(machine).holds),
        StepCheck("heals", _Healing(machine).holds),
    )
    system = Parametric(
        "a chain of any length",
        PARAMETERS,
        assumptions,
        frozenset({"done", "hit", "leading"}),
        layout,
        {each.name: number(0) for each in layout.variables},
        tuple(steps.all()),
        (),
        claims,
    )
    ranges = all_of(
        variable(each.name).ge(0) & variable(each.name).le(each.high) for each in layout.variables
    )
    lemma = Conjunct("ranges", ranges, (), "codes name a state")
    ways = tuple(_Healing(machine).ways())
    return system, Theory((lemma,), tuple(StepClaim(check, ()) for check in claims), ways)


def _variables(machine: Machine) -> Iterator[Variable]:
    states = tuple(machine.states)
    for page in PAGES:
        yield Variable(f"{page}.state", len(states) - 1, "What is believed of the page.", names=states)
        yield Variable(f"{page}.stored", 1, "Storage holds the page.")
    yield Variable("fetching", 1, "A fetch of the whole chain is in flight.")


def _begin(layout: Layout) -> Path:
    """No steps yet; `keep` is what the fetch of this step kept, and no variable of the system."""
    path = start(layout)
    kept = keep(variable("done"), variable("chain"), variable("trailing"), variable("hit"))
    return replace(path, values={**path.values, "keep": kept})


def _place(page: str) -> Expr:
    """Where the page is in the chain: the keys are the chain's trailing pages."""
    if page == "kv":
        return variable("page")
    return variable("chain") - variable("trailing") + variable("key")


def _served(page: str) -> Expr:
    """Whether the fetch delivered the page."""
    return variable("page").lt(variable("done")) if page == "kv" else variable("key").lt(variable("hit"))


@dataclass(frozen=True, slots=True)
class _Steps:
    tables: Tables
    layout: Layout
    begin: Path

    def all(self) -> Iterator[Action]:
        for number_, page in enumerate(PAGES):
            yield from self._page(number_, View(self.begin, page))
        found = variable("page").lt(variable("leading"))
        stored = self.begin.values["kv.stored"].eq(1)
        yield from self._chain("ask: found", "ask", found & stored, {"kv": "confirm"})
        yield from self._chain("ask: not found", "ask", ~found, {"kv": "deny"})
        yield from self._fetch()
        for event in ("clear", "detach", "reset"):
            lost = {f"{page}.stored": 0 for page in PAGES} if event != "reset" else {}
            yield from self._chain(event, event, TRUE, dict.fromkeys(PAGES, event), lost)

    def _page(self, subject: int, view: View) -> Iterator[Action]:
        for row in self.tables.meanings["belief"].machine.transitions:
            if row.event in ("write", "stored", "write_failed", "overflow"):
                settled = view.change({"stored": 1} if row.event == "stored" else {})
                text = f"belief.{label(row, view.instance)}"
                after = self.tables.take(settled, "belief", [row])
                yield from actions(self.layout, text, row.event, subject, after, row.effects)
        gone = view.change({"stored": 0}).assuming(view["stored"].eq(1))
        yield from actions(self.layout, f"storage loses {view.instance}", "lose", subject, [gone])

    def _fetch(self) -> Iterator[Action]:
        values = self.begin.values
        idle = values["fetching"].eq(0)
        yield from self._chain("fetch", "fetch", idle, {}, {"fetching": 1})
        served = all_of(~_served(page) | values[f"{page}.stored"].eq(1) for page in PAGES)
        whole = variable("done").eq(variable("chain")) & variable("hit").eq(variable("trailing"))
        ended: Changes = {"fetching": 0}
        yield from self._chain(
            "fetch ends whole", "done", ~idle & served & whole, dict.fromkeys(PAGES, "confirm"), ended
        )
        discarded = dict.fromkeys(PAGES, "discard")
        yield from self._chain("fetch ends short", "discard", ~idle & served & ~whole, discarded, ended)
        nothing: Changes = {**ended, "keep": 0}
        yield from self._chain(
            "fetch ends, a transfer without keys", "discard", ~idle & served, discarded, nothing
        )

    def _chain(
        self, text: str, event: str, happens: Expr, sent: Mapping[str, str], changes: Changes | None = None
    ) -> Iterator[Action]:
        views = [View(self.begin, "chain").assuming(happens).change(changes or {})]
        for page, each in sent.items():
            views = [
                after
                for view in views
                for after in self.tables.fire(replace(view, instance=page), "belief", each)
            ]
        yield from actions(self.layout, text, event, -1, views)


@dataclass(frozen=True, slots=True)
class _Evidence:
    machine: Machine

    def holds(self, action: Action, post: Mapping[str, Expr]) -> Expr:
        """Nothing is believed after the step that the step has just contradicted."""
        believed = list(self.machine.states).index("believed")
        return all_of(
            post[f"{page}.state"].ne(believed) | self._supported(action, post, subject, page)
            for subject, page in enumerate(PAGES)
        )

    def _supported(self, action: Action, post: Mapping[str, Expr], subject: int, page: str) -> Expr:
        match action.event:
            case "write_failed" if action.subject == subject:
                return post[f"{page}.stored"].eq(1)
            case "discard":
                return _served(page)
            case "clear" | "detach":
                return FALSE
        return TRUE


@dataclass(frozen=True, slots=True)
class _Healing:
    """That a hole, a page believed and not stored, heals: the argument is in docs/proofs.md, its steps are here."""

    machine: Machine

    def holds(self, action: Action, post: Mapping[str, Expr]) -> Expr:
        """No step that heals makes a hole; a fetch that ends short leaves none; a write concerns its page only."""
        if action.event not in OWN:
            return TRUE
        values = {name: variable(name) for name in post}
        kept = all_of(self._hole(values, page) | ~self._hole(post, page) for page in PAGES)
        if action.event in ("write", "stored"):
            others = [page for subject, page in enumerate(PAGES) if subject != action.subject]
            return kept & all_of(
                post[f"{page}.{what}"].eq(values[f"{page}.{what}"]) for page in others for what in WHAT
            )
        if action.event == "discard":
            return all_of(~self._hole(post, page) for page in PAGES)
        return kept

    def ways(self) -> Iterator[WayOn]:
        """A fetch begins, and ends once begun; a page that is not believed is written, and its write commits."""
        yield WayOn(
            "heals", "a fetch begins", variable("fetching").eq(0), lambda post: post["fetching"].eq(1),
            lambda action: action.event == "fetch",
        )  # fmt: skip
        shortest = {"done": number(0), "hit": number(0)}
        yield WayOn(
            "heals", "a fetch ends", variable("fetching").eq(1), lambda post: post["fetching"].eq(0),
            lambda action: action.event in ("done", "discard"), (), shortest,
        )  # fmt: skip
        for page in PAGES:
            yield self._written(page, "unknown", "write", "writing")
            yield self._written(page, "writing", "stored", "believed")

    def _written(self, page: str, before: str, event: str, after: str) -> WayOn:
        when, about = self._at(f"{page}.state", before), f"{page} is {after}"
        return WayOn("heals", about, when, self._becomes(page, after), lambda action: action.event == event)

    def _becomes(self, page: str, state: str) -> Callable[[Mapping[str, Expr]], Expr]:
        code = list(self.machine.states).index(state)
        stored = state == "believed"
        return lambda post: (
            post[f"{page}.state"].eq(code) & (post[f"{page}.stored"].eq(1) if stored else TRUE)
        )

    def _at(self, name: str, state: str) -> Expr:
        return variable(name).eq(list(self.machine.states).index(state))

    def _hole(self, values: Mapping[str, Expr], page: str) -> Expr:
        believed = list(self.machine.states).index("believed")
        return values[f"{page}.state"].eq(believed) & values[f"{page}.stored"].eq(0)
