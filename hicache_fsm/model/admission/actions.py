"""The steps of the admission system: the rows of the prefetch table, and what happens around them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hicache_fsm.model.admission.effects import acknowledge_fill
from hicache_fsm.model.admission.meaning import FORGOTTEN
from hicache_fsm.model.admission.queue import code_of, fits_device, scan_reaches, waits
from hicache_fsm.model.admission.scope import OPERATION, Scope, name
from hicache_fsm.model.build import actions
from hicache_fsm.model.expr import FALSE, TRUE, Expr, any_of, where
from hicache_fsm.model.layout import Layout
from hicache_fsm.model.system import Action
from hicache_fsm.model.tables import Changes, Path, Tables, View, groups, label
from hicache_fsm.spec.types import Machine

DECIDED_BY_ONE_ROW = (
    "hit", "miss", "lose_anchor", "revoke", "unpark", "done", "fail", "cut", "expire", "lose_match", "shrink",
    "admit", "abort", "abandon",
)  # fmt: skip
"""The prefetch events that are steps of their own; the others are parts of larger steps."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Builds the actions of one admission system from its tables; `start` is the path of no steps."""

    scope: Scope
    tables: Tables
    layout: Layout
    start: Path

    def all(self) -> tuple[Action, ...]:
        """Every action, each request's first."""
        found: list[Action] = []
        for i in range(self.scope.requests):
            found += [*self._begin(i), *self._prefetch(i), *self._after(i)]
        found += [*self._tick(), *self._everywhere("flush"), *self._everywhere("detach"), *self._world()]
        return tuple(found)

    @property
    def _table(self) -> Machine:
        return self.tables.meanings["prefetch"].machine

    @property
    def _pin(self) -> Machine:
        return self.tables.meanings["pin"].machine

    def _view(self, request: int, **parameters: int) -> View:
        return View(self.start, name(request), parameters)

    def _plain(self, text: str, event: str, request: int, guard: Expr, changes: Changes) -> list[Action]:
        """A step that no table decides."""
        view = self._view(request).change(changes).assuming(guard)
        return actions(self.layout, text, event, request, [view])

    def _begin(self, i: int) -> Iterator[Action]:
        """A request arrives, or a running one is queued again as its next attempt; either asks at once."""
        view = self._view(i)
        queued = code_of(self._table, self._table.initial)
        arrives = view["state"].eq(0) & (self._view(i - 1)["state"].ne(0) if i else TRUE)
        yield from self._issue("enqueue", i, view.change({"state": queued}).assuming(arrives))
        if self.scope.retracts:
            again: dict[str, Expr | int] = {
                "state": queued,
                "running": 0,
                "attempt": view["attempt"] + 1,
                "issued": 0,
                "pin": list(self._pin.states).index(self._pin.initial),
            }
            if self.scope.constants.resets_budget:
                again["asked"] = 0
            runs = view["running"].eq(1) & view["attempt"].lt(self.scope.attempts - 1)
            yield from self._issue("retract", i, view.change(again).assuming(runs))

    def _issue(self, event: str, i: int, view: View) -> Iterator[Action]:
        for row in self._table.rows(self._table.initial, "issue"):
            after = self.tables.take(view, "prefetch", [row], view.path.condition)
            text = f"{event} {name(i)}, prefetch.{label(row, name(i))}"
            yield from actions(self.layout, text, event, i, after, row.effects)

    def _prefetch(self, i: int) -> Iterator[Action]:
        """The rows of one request, together where they differ in their source only."""
        for event in DECIDED_BY_ONE_ROW:
            for rows in groups(row for row in self._table.transitions if row.event == event):
                for read in self.scope.reads if "cut_operation" in rows[0].effects else [None]:
                    view = self._view(i) if read is None else self._view(i, read=read)
                    happens = self._happens(event, view, i)
                    text = f"prefetch.{label(rows[0], name(i))}"
                    if read is not None:
                        happens = happens & view["pages"].gt(read)
                        text += f" after {read} pages"
                    answered = view.change(self._answer(event, view))
                    after = self.tables.take(answered, "prefetch", rows, happens)
                    yield from actions(self.layout, text, event, i, after, rows[0].effects)

    def _happens(self, event: str, view: View, i: int) -> Expr:
        """What the world must be like for the event, beside what the rows ask for."""
        asking = view["op"].eq(OPERATION.index("asking"))
        known = view["op"].eq(OPERATION.index("known"))
        reading = view["op"].eq(OPERATION.index("reading"))
        found = asking & view["stored"].gt(view["hold"])
        off = view["anchored"].eq(0)
        rules = self.scope.constants
        match event:
            case "hit":
                return found
            case "miss":
                return asking & view["stored"].le(view["hold"])
            case "lose_anchor":
                return off & (found | known)
            case "revoke":
                return found | known | view["state"].eq(code_of(self._table, "loaded"))
            case "unpark":
                return known
            case "done" | "fail":
                return reading
            case "lose_match":
                return off & view["hold"].eq(0) if rules.requeries_lost_match else FALSE
            case "shrink":
                return off
            case "admit":
                values = view.path.values
                return fits_device(self.scope, self._pin, values, i) & scan_reaches(self._table, values, i)
        return TRUE

    def _answer(self, event: str, view: View) -> Changes:
        """What storage says with the event: the length of a hit, the end of a read."""
        match event:
            case "hit":
                return {"pages": view["stored"] - view["hold"]}
            case "done" | "fail":
                return {"io": view["io"] - view["pages"]}
        return {}

    def _after(self, i: int) -> Iterator[Action]:
        """What happens to a request beside its prefetch, or after it."""
        view, who = self._view(i), name(i)
        yield from self._plain(
            f"finish {who}", "finish", i, view["running"].eq(1), {"running": 0, **FORGOTTEN}
        )
        yield from self._plain(f"filled {who}", "filled", i, view["filling"].gt(0), acknowledge_fill(view))
        ended = view.change({"io": view["io"] - view["orphan_pages"]})
        for row in self.tables.meanings["operation"].machine.rows("orphan", "end"):
            after = self.tables.take(ended, "operation", [row])
            yield from actions(
                self.layout, f"operation.end {who} (orphan)", "orphan_end", i, after, row.effects
            )
        if self.scope.constants.scope == "rid":
            yield from self._stolen(i)
        for row in self._pin.transitions:
            if row.event == "lapse":
                after = self.tables.take(view, "pin", [row])
                yield from actions(self.layout, f"pin.{label(row, who)}", "lapse", i, after, row.effects)

    def _stolen(self, i: int) -> Iterator[Action]:
        """By request id, a late answer to an older question ends the newer one, which is the orphan now."""
        view = self._view(i)
        both = view["orphan_asking"].eq(1) & view["op"].eq(OPERATION.index("asking"))
        for rows in groups(row for row in self._table.transitions if row.event == "miss"):
            after = self.tables.take(view, "prefetch", rows, both)
            text = f"prefetch.{label(rows[0], name(i))} by the answer of its orphan"
            yield from actions(self.layout, text, "orphan_answer", i, after, rows[0].effects)

    def _tick(self) -> list[Action]:
        """One scheduling pass: every marker and wait in the queue is swept once, in the queue's order."""
        if not self.scope.constants.sweeps:
            return []
        views = [self._view(0)]
        swept = FALSE
        for i in range(self.scope.requests):
            counted = [code_of(self._table, state) for state in ("missed", "pending")]
            here = any_of(self._view(i)["state"].eq(code) for code in counted)
            swept = swept | here
            views = [after for view in views for after in self._sweep(replace(view, instance=name(i)), here)]
        return actions(self.layout, "tick", "tick", -1, [view.assuming(swept) for view in views])

    def _sweep(self, view: View, here: Expr) -> list[View]:
        passed = view.change({"since": where(here, view["since"] + 1, view["since"])})

        def marked(view: View, source: str) -> Expr:
            return view["marker"].ne(0) if source == "missed" else TRUE

        return self.tables.fire(passed, "prefetch", "sweep", also=marked)

    def _everywhere(self, event: str) -> list[Action]:
        """One step that happens to the whole queue; after a detach, an empty storage is attached."""
        queued = any_of(waits(self._table, self.start.values, i) for i in range(self.scope.requests))
        views = [self._view(0)]
        for i in range(self.scope.requests):
            views = [
                after
                for view in views
                for after in self.tables.fire(replace(view, instance=name(i)), "prefetch", event)
            ]
        happens = queued
        if event == "detach":
            views = [view.change({"stored": 0}) for view in views]
            happens = queued | self.start.values["stored"].ne(0)
        happens = happens & self._may_reset(event, queued)
        return actions(self.layout, event, event, -1, [view.assuming(happens) for view in views])

    def _may_reset(self, event: str, queued: Expr) -> Expr:
        """Whether the engine lets a flush or a detach happen: upstream while nothing runs, is asked or held."""
        under = self.scope.constants.resets_under
        if under == "queue":
            return TRUE
        views = [self._view(i) for i in range(self.scope.requests)]
        busy = any_of(
            any_of(view[what].ne(0) for what in ("running", "op", "hold", "filling")) for view in views
        )
        return ~busy & (TRUE if under == "pause" and event == "flush" else ~queued)

    def _world(self) -> Iterator[Action]:
        """Storage commits a page; the anchor leaves the device, unless it is pinned, and comes back."""
        view = self._view(0)
        yield from self._plain(
            "wack", "wack", -1, view["stored"].lt(self.scope.chain), {"stored": view["stored"] + 1}
        )
        yield from self._plain("insert anchor", "insert", -1, view["anchored"].eq(0), {"anchored": 1})
        yield from self._evict()

    def _evict(self) -> list[Action]:
        """The anchor leaves the device, if the table lets every pin on it go along."""

        def arrived(view: View, source: str) -> Expr:
            return view["state"].ne(0)

        views = [self._view(0).assuming(self._view(0)["anchored"].eq(1))]
        meaning = self.tables.meanings["pin"]
        for i in range(self.scope.requests):
            own = self._view(i)
            sources = {row.source for row in self._pin.transitions if row.event == "evict"}
            blocked = any_of(
                meaning.at(own, state)
                for state in self._pin.states
                if state not in sources and state not in self._pin.terminal
            )
            here = own["state"].ne(0)
            views = [
                after.assuming(~(here & blocked))
                for view in views
                for after in self.tables.fire(replace(view, instance=name(i)), "pin", "evict", also=arrived)
            ]
        gone = [view.change({"anchored": 0}) for view in views]
        return actions(self.layout, "evict anchor", "evict", -1, gone)
