"""States in words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache_fsm.model.layout import Layout, ModelError, Variable

LAYOUT = Layout(
    [Variable("a", 4, "Five values."), Variable("b", 1, "A flag."), Variable("c", 2, "A debt.", low=-1)]
)
STATES = st.fixed_dictionaries({"a": st.integers(0, 4), "b": st.integers(0, 1), "c": st.integers(-1, 2)})


@given(st.lists(STATES, min_size=1))
def test_a_packed_state_comes_back(states: list[dict[str, int]]) -> None:
    words = [LAYOUT.pack(state) for state in states]
    assert [LAYOUT.unpack(word) for word in words] == states
    columns = LAYOUT.columns([np.array([word for (word,) in words], np.uint64)])
    for name in ("a", "b", "c"):
        assert columns[name].tolist() == [state[name] for state in states]


def test_the_last_word_of_a_full_layout_comes_back() -> None:
    layout = Layout([Variable(f"v{i}", 15, "Four bits.") for i in range(16)])
    assert layout.words == 1
    assert layout.pack({f"v{i}": 15 for i in range(16)}) == (2**64 - 1,)
    columns = layout.columns([np.array([2**64 - 1], np.uint64)])
    assert all(column.tolist() == [15] for column in columns.values())


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(ModelError, match=r"a = 5 is not in 0\.\.4"):
        LAYOUT.pack({"a": 5, "b": 0, "c": 0})


def test_what_one_word_cannot_hold_takes_two() -> None:
    layout = Layout([Variable(f"v{i}", 15, "Four bits.") for i in range(17)])
    state = {f"v{i}": i % 16 for i in range(17)}
    assert layout.words == 2
    assert layout.unpack(layout.pack(state)) == state
    columns = layout.columns([np.array([word], np.uint64) for word in layout.pack(state)])
    assert {name: int(column[0]) for name, column in columns.items()} == state


def test_a_name_used_twice_is_refused() -> None:
    with pytest.raises(ModelError, match="same name"):
        Layout([Variable("a", 1, "One."), Variable("a", 1, "Another.")])
