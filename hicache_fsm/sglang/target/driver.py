"""Drives one world of the gated engine, word by word."""

from __future__ import annotations

from .answers import Answers
from .doors import Doors
from .engine import GatedEngine
from .look import Looker
from .queueing import Queue
from .tree import Tree
from .words import AbsentError, Answer, UnableError, Word
from .world import PlainWorld

UNABLE = {
    "discard": "the dense layout has one pool, so that none can come up short of another",
    "load": "a load-back is part of an admission: no sequence can claim one node for it",
    "loaded": "a load-back is part of an admission: its copy is acknowledged by `ack`",
    "tombstone": "the dense layout has no sliding window",
}


class Driver:
    """One world. Raises whatever the engine raises: an engine that raised has ended."""

    def __init__(self, engine: GatedEngine, world: PlainWorld) -> None:
        """Begins the world. Raises ``DirtyError``."""
        engine.begin(world)
        self.look = look = Looker(engine, world)
        answers = Answers(engine, look, world)
        tree = Tree(engine, look, world, answers)
        self._parts = (Queue(engine, look, world, answers), answers, tree, Doors(engine, look, world))
        if world.device:
            tree.start_resident(world.device)
        if world.storage:
            tree.store(Word("store", world.storage))

    def drive(self, word: Word) -> Answer:
        """What became of the event, and why."""
        if word.name in UNABLE:
            return "inexpressible", UNABLE[word.name]
        told = getattr(self.look, f"told_{word.name}", None)
        if told is not None:
            return ("seen", "") if told(word.subjects[0]) else ("absent", "")
        act = next((getattr(part, word.name) for part in self._parts if hasattr(type(part), word.name)), None)
        if act is None:
            return "inexpressible", f"this target does not know `{word.name}`"
        self.look.mark()
        try:
            answer: Answer = act(word)
        except UnableError as why:
            return "inexpressible", str(why)
        except AbsentError as why:
            return "absent", str(why)
        return answer
