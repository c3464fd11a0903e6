"""States as keys of 64 bits, however many words they take."""

from collections.abc import Iterator, Sequence

import numpy as np

from hicache_fsm.explore.engine import Packed
from hicache_fsm.explore.sets import contained, distinct
from hicache_fsm.model.layout import Column, Layout, ModelError, Words

CHUNK = 1 << 16
"""States handled at once: their columns stay in the processor's cache."""


class Space:
    """Keys for the states of a layout: the word itself if one is enough, else its words' numbers.

    Words recur in many states, so each is numbered as it is first met; a key holds the numbers side by side.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._bits = np.uint64(64 // layout.words)
        self._numbers = [
            _Numbers(1 << int(self._bits)) for _ in range(layout.words if layout.words > 1 else 0)
        ]

    def key(self, state: Packed) -> int:
        """The key of one state."""
        return int(self._join([np.array([word], np.uint64) for word in state])[0])

    def packed(self, key: int) -> Packed:
        """The words of one state."""
        return tuple(int(word[0]) for word in self._split(np.array([key], np.uint64)))

    def smallest(self, keys: Words) -> Packed:
        """The words of the state that comes first, of those with `keys`."""
        words = self._split(keys)
        first = np.lexsort(words[::-1])[0]
        return tuple(int(word[first]) for word in words)

    def columns(self, keys: Words) -> dict[str, Column]:
        """The values of many states, one column a variable."""
        return self._layout.columns(self._split(keys))

    def chunks(self, keys: Words) -> Iterator[tuple[int, Words, dict[str, Column]]]:
        """The states in chunks: the first one's position, the keys, their columns."""
        for first in range(0, keys.size, CHUNK):
            part = keys[first : first + CHUNK]
            yield first, part, self.columns(part)

    def keys(self, words: Sequence[Words]) -> Words:
        """The keys of many states, by their words."""
        return self._join(words)

    def moved(self, keys: Words, changes: Sequence[tuple[int, Words]]) -> Words:
        """The keys after adding to the states' words, modulo 2**64: (which word, how much for each state)."""
        words = self._split(keys)
        for word, change in changes:
            words[word] = words[word] + change
        return self._join(words)

    def _split(self, keys: Words) -> list[Words]:
        if not self._numbers:
            return [keys]
        mask = np.uint64((1 << int(self._bits)) - 1)
        return [
            numbers.words[(keys >> (self._bits * np.uint64(place))) & mask]
            for place, numbers in enumerate(self._numbers)
        ]

    def _join(self, words: Sequence[Words]) -> Words:
        if not self._numbers:
            return words[0]
        keys = np.zeros(words[0].shape, np.uint64)
        for place, (numbers, each) in enumerate(zip(self._numbers, words, strict=True)):
            keys |= numbers.of(each) << (self._bits * np.uint64(place))
        return keys


class _Numbers:
    """Words in the order in which they were first met."""

    def __init__(self, limit: int) -> None:
        self.words: Words = np.empty(0, np.uint64)
        self._order: Words = np.empty(0, np.uint64)
        self._sorted: Words = np.empty(0, np.uint64)
        self._limit = limit

    def of(self, words: Words) -> Words:
        """The number of each word, new ones numbered."""
        place = self._place(words)
        if not self._sorted.size or not np.array_equal(self._sorted[place], words):
            known = contained(words, self._sorted)
            self._add(distinct([words[~known]]))
            place = self._place(words)
        return self._order[place]

    def _place(self, words: Words) -> Words:
        place = np.searchsorted(self._sorted, words).astype(np.uint64)
        place[place == self._sorted.size] = 0
        return place

    def _add(self, fresh: Words) -> None:
        """Number the words of `fresh`, which is sorted."""
        first = self.words.size
        if first + fresh.size > self._limit:
            raise ModelError("the states take too many different words: lower the bounds")
        places = np.searchsorted(self._sorted, fresh)
        numbers = np.arange(first, first + fresh.size, dtype=np.uint64)
        self.words = np.concatenate((self.words, fresh))
        self._order = np.insert(self._order, places, numbers)
        self._sorted = np.insert(self._sorted, places, fresh)
