"""Variables, and how a state's values are packed into 64-bit words."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
Column = npt.NDArray[np.int8]

LIMIT = 60
"""The largest absolute value of a variable: sums of two still fit a column of 8 bits."""


class ModelError(Exception):
    """A system that cannot be built or that leaves its ranges: a defect of the model or its bounds."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One number of a state, from `low` to `high`.

    A `saturating` one stops at its ends, so that a wrong system, whose counters run away, still has finitely
    many states.  `names` are what the values 0, 1, ... are called.
    """

    name: str
    high: int
    about: str
    low: int = 0
    saturating: bool = False
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many values there are."""
        return self.high - self.low + 1

    def show(self, value: int) -> str:
        """The value in words."""
        return self.names[value] if self.names else str(value)


class Layout:
    """A state as mixed-radix numbers of 64 bits, one digit a variable: as many words as the variables need.

    `places` gives each variable's word and its weight in it.
    """

    __slots__ = ("index", "places", "variables", "words")

    def __init__(self, variables: Iterable[Variable]) -> None:
        self.variables = tuple(variables)
        self.index = {variable.name: i for i, variable in enumerate(self.variables)}
        if len(self.index) != len(self.variables):
            raise ModelError("two variables have the same name")
        places: list[tuple[int, int]] = []
        word, weight = 0, 1
        for variable in self.variables:
            if max(abs(variable.low), abs(variable.high)) > LIMIT or variable.size < 1:
                raise ModelError(f"{variable.name} ranges from {variable.low} to {variable.high}")
            if weight * variable.size > 2**64:
                word, weight = word + 1, 1
            places.append((word, weight))
            weight *= variable.size
        self.places = tuple(places)
        self.words = word + 1

    def pack(self, state: Mapping[str, int]) -> tuple[int, ...]:
        """The words of one state.  Raises ModelError if a value is out of its range."""
        words = [0] * self.words
        for variable, (word, weight) in zip(self.variables, self.places, strict=True):
            value = state[variable.name]
            if not variable.low <= value <= variable.high:
                raise ModelError(f"{variable.name} = {value} is not in {variable.low}..{variable.high}")
            words[word] += (value - variable.low) * weight
        return tuple(words)

    def unpack(self, words: Sequence[int]) -> dict[str, int]:
        """The values of one state."""
        return {
            variable.name: words[word] // weight % variable.size + variable.low
            for variable, (word, weight) in zip(self.variables, self.places, strict=True)
        }

    def columns(self, words: Sequence[Words]) -> dict[str, Column]:
        """The values of many states, one column a variable."""
        columns: dict[str, Column] = {}
        rest = list(words)
        for variable, (word, _) in zip(self.variables, self.places, strict=True):
            size = np.uint64(variable.size)
            quotient = rest[word] // size
            digit = (rest[word] - quotient * size).astype(np.int8)
            columns[variable.name] = digit + np.int8(variable.low) if variable.low else digit
            rest[word] = quotient
        return columns

    def words_of(self, columns: Mapping[str, Column]) -> list[Words]:
        """The words of many states, by their values."""
        size = next(iter(columns.values())).size
        words = [np.zeros(size, np.uint64) for _ in range(self.words)]
        for variable, (word, weight) in zip(self.variables, self.places, strict=True):
            digit = (columns[variable.name].astype(np.int64) - variable.low).astype(np.uint64)
            words[word] += digit * np.uint64(weight)
        return words
