"""The steps of the searches, held against the rows of the prefetch table."""

import pytest

from hicache_fsm.conform import case
from hicache_fsm.conform.model_side import model_graph
from hicache_fsm.conform.rows import LifecycleEdge, table_edges, taken_edges
from hicache_fsm.conform.tlc_side import tlc_graph
from hicache_fsm.conform.views import whole
from hicache_fsm.spec import Spec, load_spec
from hicache_fsm.tlc import TlcError, locate

SEARCHES = (
    ("admission.single", "recommended"),
    ("admission.pair", "recommended"),
    ("admission.tail", "recommended"),
    ("admission.revoking", "seed"),
    ("admission.alone", "seed"),
    ("admission.pair", "sglang-0.5.23"),
    ("admission-disabled.interval", "recommended"),
    ("admission-disabled.revoking", "recommended"),
)
"""Together they take every row that can be taken."""

DEAD: frozenset[LifecycleEdge] = frozenset({("pending", "lose_match", "exhausted")})
"""An attempt is pending only while budget is left, and spends none there: the row is for completeness."""


@pytest.fixture(scope="module")
def spec() -> Spec:
    return load_spec()


def _taken(spec: Spec, configuration: str, profile: str) -> frozenset[LifecycleEdge]:
    chosen = case(spec, configuration, profile)
    system = chosen.system()
    return taken_edges(model_graph(system, whole(system), chosen.label), spec.machines["prefetch"])


def test_no_step_of_a_request_is_outside_the_table(spec: Spec) -> None:
    taken = _taken(spec, "admission.single", "recommended")
    assert taken
    assert taken <= table_edges(spec.machines["prefetch"])


@pytest.mark.slow
def test_every_row_of_the_table_is_taken_by_some_search(spec: Spec) -> None:
    taken = frozenset[LifecycleEdge]().union(*(_taken(spec, *search) for search in SEARCHES))
    assert table_edges(spec.machines["prefetch"]) - taken == DEAD


@pytest.mark.tlc
def test_no_step_of_tlc_is_outside_the_table(spec: Spec) -> None:
    try:
        tools = locate()
    except TlcError as error:
        pytest.skip(str(error))
    chosen = case(spec, "admission.single")
    system, table = chosen.system(), spec.machines["prefetch"]
    graph, _ = tlc_graph(tools, chosen.job(), system, whole(system))
    assert taken_edges(graph, table) == _taken(spec, "admission.single", "recommended") <= table_edges(table)
