"""The runtime under the upstream profiles: what their unguarded door leaves behind contradicts nothing."""

import pytest

from hicache_fsm.conform import case, compare, runtime_graph, sides
from hicache_fsm.model import Configuration
from hicache_fsm.spec import load_spec

TINY = Configuration(
    "admission.tiny",
    "admission",
    "One request, one page, one attempt.",
    False,
    {"interval": 1, "max_attempts": 1},
    {"requests": 1, "chain": 1, "host": 1, "device": 2, "context": 1, "anchors": [1], "attempts": 1},
)


@pytest.mark.parametrize("profile", ["seed", "sglang-0.5.23"])
def test_what_is_left_of_an_abandoned_request_is_no_choice_that_the_runtime_refuses(profile: str) -> None:
    graph = runtime_graph(
        case(load_spec(), TINY, profile).driver(
            ("r0.state", "r0.op", "r0.pin", "pinned", "anchored", "stored")
        )
    )
    left = {state for state in graph.edges if state[0] == "aborted" and state[1] != "none"}
    assert left


def test_an_anchor_evicted_before_its_pin_at_the_hit_is_lost_on_all_sides() -> None:
    chosen = case(load_spec(), TINY, "sglang-0.5.23")
    report = compare(chosen, sides(chosen, None, runtime=True))
    difference = report.comparisons[0].difference
    lost = [edge.label for only in difference.only for edge in only] if difference is not None else []
    assert "evict" not in lost
