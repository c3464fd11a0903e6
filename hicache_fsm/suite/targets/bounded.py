"""A bounded system of the model, stepped along a sequence one action at a time."""

from collections.abc import Callable, Mapping

import numpy as np

from hicache_fsm.model import Action, Configuration, System, system
from hicache_fsm.model.program import Program
from hicache_fsm.spec import Constants, Spec, Transition, set_constant
from hicache_fsm.suite.protocol import World


class Systems:
    """Builds the systems of a profile, each once for the same constants and bounds."""

    def __init__(self, spec: Spec, profile: str) -> None:
        self._spec, self._profile = spec, profile
        self._built: dict[str, tuple[System, Spec]] = {}

    def constants(self, world: World) -> Constants:
        """The profile's constants, as far as the world does not set them itself."""
        return self._in(world).profiles[self._profile].constants

    def build(self, kind: str, world: World, bounds: Mapping[str, object]) -> tuple[System, Spec]:
        """The system of that kind, and the spec that it is built from.  Raises ModelError or ValueError."""
        key = f"{kind} {world.interval} {world.max_attempts} {world.cap_fraction} {bounds}"
        if key not in self._built:
            spec = self._in(world)
            configuration = Configuration("scenario", kind, "", False, {}, bounds)
            self._built[key] = system(spec, self._profile, configuration), spec
        return self._built[key]

    def _in(self, world: World) -> Spec:
        return set_constant(
            self._spec,
            self._profile,
            interval=world.interval,
            max_attempts=world.max_attempts,
            pin_fraction=world.cap_fraction,
        )


class Bounded:
    """One state of a system, and its steps; `spec` is the one that the system was built from."""

    def __init__(self, system: System, spec: Spec, **truths: int) -> None:
        """Starts in the initial state, with other values for the variables in `truths`."""
        self._system = system
        self._rows = {
            (name, row.row): row for name, machine in spec.machines.items() for row in machine.transitions
        }
        self.state: dict[str, int] = {**system.initial, **truths}
        self._guards = Program([action.guard for action in system.actions])

    def word(self, name: str) -> str:
        """A variable's value in words."""
        layout = self._system.layout
        return layout.variables[layout.index[name]].show(self.state[name])

    def enabled(self, event: str, subject: int | None = None) -> list[Action]:
        """The actions of that event that the state allows, about one subject if given."""
        holds = self._guards.run(self._columns())
        return [
            action
            for action, guard in zip(self._system.actions, holds, strict=True)
            if action.event == event and subject in (None, action.subject) and bool(np.all(guard))
        ]

    def take(
        self, event: str, subject: int | None = None, suits: Callable[[Action], bool] = lambda action: True
    ) -> Action | None:
        """Take the first enabled action that suits; None if there is none."""
        for action in self.enabled(event, subject):
            if suits(action):
                values = Program(list(action.updates.values())).run(self._columns())
                self.last = self.rows(action)
                self.state |= {
                    name: int(np.max(value)) for name, value in zip(action.updates, values, strict=True)
                }
                return action
        return None

    def rows(self, action: Action) -> list[tuple[str, Transition]]:
        """The rows that the action takes in this state, with who takes each."""
        holds = Program([condition for _, condition in action.rows]).run(self._columns())
        return [
            (row.label.split()[1], self._rows[row.machine, row.number])
            for (row, _), taken in zip(action.rows, holds, strict=True)
            if bool(np.all(taken))
        ]

    last: list[tuple[str, Transition]]
    """The rows that the last action took."""

    def _columns(self) -> Mapping[str, np.ndarray[tuple[int], np.dtype[np.int8]]]:
        return {name: np.array([value], np.int8) for name, value in self.state.items()}
