"""Interchangeable instances: found out, not assumed, and one state for all that they make of it."""

from dataclasses import replace

import pytest

from hicache_fsm.explore import explore
from hicache_fsm.explore.symmetry import symmetry
from hicache_fsm.model import System, system
from hicache_fsm.model.bounds import Wish, asked_for
from hicache_fsm.model.expr import number, variable
from hicache_fsm.model.layout import Layout, Variable
from hicache_fsm.model.system import Action, StateCheck
from hicache_fsm.spec import Spec, apply_witness, load_spec, set_constant

SPEC = load_spec()


def built(wish: Wish, spec: Spec = SPEC) -> System:
    (configuration,) = asked_for(wish)
    return system(spec, "recommended", configuration)


WISHES = [
    Wish(nodes=2),
    Wish(nodes=3),
    Wish(nodes=4, loaders=3),
    Wish(nodes=3, holders=3, pool=4),
    Wish(ranks=2),
    Wish(ranks=4, interval=3),
]


@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_the_sum_of_the_orbits_is_the_unreduced_count(wish: Wish) -> None:
    whole = explore(built(wish))
    reduced = explore(built(wish), symmetric=True)
    assert reduced.represented == whole.distinct
    assert reduced.distinct < whole.distinct
    assert reduced.depth == whole.depth
    assert {n: v.outcome for n, v in reduced.verdicts.items()} == {
        n: v.outcome for n, v in whole.verdicts.items()
    }


def test_ten_nodes_are_searched_by_their_few_kinds_of_states() -> None:
    result = explore(built(Wish(nodes=8)), symmetric=True)
    assert result.complete
    assert result.represented is not None
    assert result.represented > 1000 * result.distinct


@pytest.mark.parametrize("invariant", ["load-exclusive", "tombstone-once", "lockstep"])
def test_a_violation_has_a_path_of_the_same_length_that_can_be_taken(invariant: str) -> None:
    mutant = apply_witness(SPEC, SPEC.invariants[invariant].witness)
    wish = Wish(ranks=3) if invariant == "lockstep" else Wish(nodes=3)
    whole = explore(built(wish, mutant)).verdicts[invariant].trace
    reduced = explore(built(wish, mutant), symmetric=True).verdicts[invariant].trace
    assert whole is not None
    assert reduced is not None
    assert len(reduced) == len(whole)
    names = [row.label for step in reduced.steps for row in step.rows]
    assert names


def test_requests_have_an_order_and_are_not_interchangeable() -> None:
    queue = built(Wish(requests=2, anchors=(1, 1)))
    assert symmetry(queue) is None
    assert symmetry(replace(queue, steps=(), goals=())) is None


def test_a_system_without_interchangeable_instances_is_searched_whole() -> None:
    queue = built(Wish(requests=1))
    assert explore(queue, symmetric=True).represented is None
    assert explore(queue, symmetric=True).distinct == explore(queue).distinct


def switches(*shared: int) -> System:
    """Three switches; each can be thrown, those in `shared` by a rule of their own."""
    names = [f"s{i}.on" for i in range(3)]
    actions = [
        Action(f"throw {n}", "throw", i, variable(n).eq(0), {n: number(1)}) for i, n in enumerate(names)
    ]
    for i in shared:
        actions.append(Action(f"back {i}", "back", i, variable(names[i]).eq(1), {names[i]: number(0)}))
    layout = Layout([Variable(name, 1, "thrown") for name in names])
    return System("switches", "switches.test", "none", layout, dict.fromkeys(names, 0), tuple(actions))


@pytest.mark.parametrize(
    ("own_rule", "interchangeable"), [((), "3 s"), ((0, 1, 2), "3 s"), ((0,), "2 s"), ((0, 1), "2 s")]
)
def test_an_instance_with_a_rule_of_its_own_is_not_interchangeable(
    own_rule: tuple[int, ...], interchangeable: str
) -> None:
    assert str(symmetry(switches(*own_rule))) == interchangeable


def test_a_check_or_a_start_that_names_an_instance_tells_it_apart() -> None:
    named = replace(switches(), states=(StateCheck("first", variable("s0.on").eq(0)),))
    assert str(symmetry(named)) == "2 s"
    assert str(symmetry(replace(switches(), initial={"s0.on": 1, "s1.on": 0, "s2.on": 0}))) == "2 s"


def test_a_wrong_rule_is_still_found_with_the_clock_of_each_rank() -> None:
    spec = set_constant(SPEC, "recommended", pacing="clock")
    assert explore(built(Wish(ranks=3), spec), symmetric=True).violated == ("lockstep",)
