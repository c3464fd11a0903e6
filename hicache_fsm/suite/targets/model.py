"""The model as a target: its bounded systems, stepped along a sequence; what they have no step for is inexpressible."""

from dataclasses import replace
from functools import cache
from typing import Final

from hicache_fsm.model import ModelError
from hicache_fsm.spec import Spec, load_spec
from hicache_fsm.suite.language import WORDS
from hicache_fsm.suite.protocol import Answer, CacheUnderTest, Event, Observed, Reply, UnsupportedError, World
from hicache_fsm.suite.targets.bounded import Bounded, Systems
from hicache_fsm.suite.targets.model_admission import Admission
from hicache_fsm.suite.targets.model_requests import DONE, SEEN, not_said

PAGE_WORDS: Final = frozenset({"write", "wack", "drop", "clear", "detach", "flush", "discard", "store"})
NODE_WORDS: Final = frozenset({"load", "loaded", "tombstone"})
TOLD: Final = frozenset(name for name, word in WORDS.items() if word.told) | {"alloc", "revoke"}


class ModelTarget:
    """Builds the bounded systems under a profile.  `spec` None is the shipped one."""

    name = "model"

    def __init__(self, profile: str = "recommended", spec: Spec | None = None) -> None:
        self._systems = Systems(spec or load_spec(), profile)

    def build(self, world: World) -> CacheUnderTest:
        """A fresh model.  Raises UnsupportedError for a world that its systems have no variables for."""
        if world.ranks > 1:
            raise UnsupportedError("the model's ranks know one request and no events but passes")
        if world.mode == "cache":
            raise UnsupportedError("the model's host pool is buffer mode's")
        try:
            return ModelCache(self.name, world, self._systems)
        except (ValueError, ModelError) as error:
            raise UnsupportedError(str(error)) from error


class ModelCache:
    """Three systems beside each other, each taking the words that are its own."""

    def __init__(self, name: str, world: World, systems: Systems) -> None:
        self.name = name
        self._admission = Admission(world, systems)
        self._beliefs = Beliefs(world, systems)
        self._nodes = cache(lambda: Nodes(world, systems))

    def drive(self, event: Event) -> Reply:
        """Bring the event about in the system that it belongs to."""
        told = self._admission.told
        if event.name in TOLD:
            if (event.name, event.subjects[0]) in told:
                return SEEN
        else:
            told.clear()
        if event.name in NODE_WORDS or (event.name == "evict" and not self._admission_used()):
            return self._nodes().drive(event)
        if event.name == "done" and (short := self._beliefs.short()):
            return Reply(Answer.REFUSED, f"{short} is not stored: the read is discarded")
        if event.name in ("write", "wack", "drop", "clear"):
            reply = self._beliefs.drive(event)
            if reply.answer is Answer.DONE and event.name == "wack":
                also = self._admission.drive(event)
                return also if also.answer is Answer.INEXPRESSIBLE and self._admission_used() else reply
            return (
                reply
                if event.name != "drop" or not self._admission_used()
                else not_said("hole in what is stored")
            )
        reply = self._admission.drive(event)
        if reply.answer is Answer.DONE and event.name in PAGE_WORDS | {"hit", "miss", "done"}:
            self._beliefs.drive(event)
        return reply

    def observe(self) -> Observed:
        """What the systems show together."""
        seen = self._admission.observe()
        return replace(seen, believed=self._beliefs.believed())

    def close(self) -> None:
        """Nothing outlives a run."""

    def _admission_used(self) -> bool:
        return any(view.state != "absent" for view in self._admission.observe().requests.values())


class Beliefs:
    """The belief system: the pages of the requests' span, and the auxiliary page of its end in a hybrid layout."""

    def __init__(self, world: World, systems: Systems) -> None:
        pages = [page for page in next(iter(world.prompts.values())) if page not in world.device]
        trailing = int(world.layout != "dense" and bool(pages))
        names = {page: f"kv{number}" for number, page in enumerate(pages)}
        if trailing:
            names[f"{world.layout}.{pages[-1]}"] = f"aux{len(pages) - 1}"
        self._pages, self._names = pages, names
        bounds = {"chain": len(pages), "trailing": trailing}
        stored = {f"{names[page]}.stored": 1 for page in world.storage if page in names}
        built, spec = systems.build("belief", world, bounds)
        self._model = Bounded(built, spec, **stored)
        self._subjects = {name: number for number, name in enumerate(names.values())}

    def believed(self) -> frozenset[str]:
        """The pages that are believed stored."""
        return frozenset(page for page, name in self._names.items() if self._is(name, "believed"))

    def short(self) -> str:
        """The auxiliary page that storage has not."""
        aux = [page for page, name in self._names.items() if name.startswith("aux")]
        return next((page for page in aux if not self._model.state[f"{self._names[page]}.stored"]), "")

    def drive(self, event: Event) -> Reply:
        """Bring the event about; a question or a fetch of a request is one of the whole chain."""
        match event.name:
            case "write" | "wack" | "drop" | "store":
                return self._of_pages(event)
            case "hit" | "miss":
                self._model.take("ask")
            case "done":
                self._model.take("fetch")
                self._model.take("done")
            case "discard":
                self._model.take("fetch")
                kept = event.amount or 0
                self._model.take(
                    "discard", None, lambda action: (action.parameters or {}).get("keep") == kept
                )
            case "clear" | "detach":
                self._model.take(event.name)
            case "flush":
                self._model.take("reset")
        return DONE

    def _of_pages(self, event: Event) -> Reply:
        if not set(event.subjects) <= set(self._names):
            return not_said("page beyond the requests' span")
        replies = [self._page(event, self._names[page]) for page in event.subjects]
        return next((reply for reply in replies if reply.answer is not Answer.DONE), DONE)

    def _page(self, event: Event, name: str) -> Reply:
        subject = self._subjects[name]
        match event.name:
            case "write":
                if not self._is(name, "unknown"):
                    return Reply(Answer.REFUSED, "believed stored, or being written")
                self._model.take("write", subject)
            case "wack":
                if not self._is(name, "writing"):
                    return Reply(Answer.ABSENT, "no such write is in flight")
                self._model.take("write_failed" if event.facts.get("ok") == "no" else "stored", subject)
            case "drop":
                self._model.take("lose", subject)
            case "store":
                # The system has no step for it: what is stored is a truth that its steps only read.
                self._model.state[f"{name}.stored"] = 1
        return DONE

    def _is(self, name: str, state: str) -> bool:
        return self._model.word(f"{name}.state") == state


class Nodes:
    """The node system: the pages that the device holds at the start, two load-backs, one holder each."""

    LOADERS: Final = 2

    def __init__(self, world: World, systems: Systems) -> None:
        self._numbers = {page: number for number, page in enumerate(sorted(world.device))}
        self._loaders: dict[str, int] = {}
        self._model: Bounded | None = None
        if self._numbers:
            count = len(self._numbers)
            bounds = {"nodes": count, "loaders": self.LOADERS, "holders": 1, "full": count, "swa": count}
            self._model = Bounded(*systems.build("node", world, bounds))

    def drive(self, event: Event) -> Reply:
        """Bring the event about."""
        number = self._numbers.get(event.node)
        if number is None or self._model is None:
            return not_said("node that was not on the device at the start")
        loader = (
            self._loaders.setdefault(event.facts.get("by", ""), len(self._loaders))
            if "by" in event.facts
            else 0
        )
        if loader >= self.LOADERS:
            return not_said("third load-back")
        taken = self._model.take(
            event.name, number, lambda action: (action.parameters or {"loader": loader})["loader"] == loader
        )
        if taken is None:
            return Reply(Answer.REFUSED, f"{event.node} is {self._model.word(f'n{number}.state')}")
        if not self._model.last[-1][1].effects:
            return Reply(Answer.REFUSED, f"{event.node} is claimed by another load-back")
        return DONE
