"""Fair liveness: the verdicts of TLC on its liveness models, and the runs that show why where it fails."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from hicache_fsm.explore import TooLargeError
from hicache_fsm.model import Configuration, System, system
from hicache_fsm.model.bounds import Wish, asked_for
from hicache_fsm.model.expr import all_of, any_of, evaluate, one_of, variable
from hicache_fsm.model.fairness import Fairness, Liveness, fairness, liveness
from hicache_fsm.spec import Spec, Witness, apply_witness, load_spec, set_constant
from hicache_fsm.tlc import tla_dir
from hicache_fsm.tlc.counterexample import Origin, origin
from hicache_fsm.tlc.manifest import Entry, load_manifest

pytest.importorskip("scipy")

from hicache_fsm.explore.fair import LiveVerdict, decide

SPEC = load_spec()
CALM = {
    "tick", "lose_match", "admit", "finish", "filled", "unpark", "lapse", "hit", "miss", "done", "fail",
    "orphan_end", "orphan_answer", "wack", "enqueue",
}  # fmt: skip
"""The steps of `Calm` in tla/MCAdmission.tla."""

OWED: Mapping[str, Callable[[Fairness], bool]] = {
    "Spec": lambda group: False,
    "FairSpec": lambda group: True,
    "CalmSpec": lambda group: True,
    "UnfairSchedulerSpec": lambda group: group.by == "storage",
    "UnfairStorageSpec": lambda group: group.by == "scheduler",
    "UnfairPassSpec": lambda group: group.by == "storage",
    "UnfairOrphansSpec": lambda group: not group.name.startswith("orphan_end"),
    "UnfairFillsSpec": lambda group: not group.name.startswith("filled"),
    "NeverInsertedSpec": lambda group: not group.name.startswith("write"),
    "NeverAckedSpec": lambda group: not group.name.startswith("stored"),
    "NeverFetchedSpec": lambda group: "fetch" not in group.name,
}
"""Which groups each specification of tla/*.tla leaves fair."""


def drop(machine: str, event: str, source: str = "", dest: str = "") -> Witness:
    return Witness("drop", "transition", machine=machine, event=event, source=source, dest=dest)


MUTANTS: Mapping[str, tuple[Witness, ...]] = {
    "OrphanNeverEnds": (drop("operation", "end", "orphan"),),
    "DiscardKeepsBeliefs": (drop("belief", "discard", "believed", "unknown"),),
    "BackupThreadDies": (drop("belief", "stored"), drop("belief", "write_failed")),
    "LoadNeverAcked": (drop("node", "loaded"),),
}
"""Toggles of the TLA+ that are changes of the spec."""

GUARDED = ("DrainsWithQueueOnly", "CompletesAtHeadOnly", "HeadNeverWritten")
"""Toggles that forbid steps."""

UNREADABLE = {"MCAdmission_bug_starves": "the spec has no row for a holder of a part that parks"}


def live(entry: Entry) -> bool:
    text = (tla_dir() / entry.cfg).read_text(encoding="utf-8")
    return entry.result in ("success", "liveness failure") and bool(
        re.search(r"\b(Progress|MarkerServed|OrphansEnd|Headroom|Heals|LoadsEnd|Settles)Prop\b", text)
    )


MODELS = {
    name: entry for name, entry in load_manifest(tla_dir()).items() if live(entry) and name not in UNREADABLE
}


def built(spec: Spec, model: Origin) -> System:
    bounds = {name: [*v] if isinstance(v, tuple) else v for name, v in model.bounds.items()}
    configuration = Configuration(
        f"{model.system}.live", model.system, "as TLC has it", False, dict(model.constants), bounds
    )
    return system(spec, model.profile, configuration)


def without(plain: System, toggle: str) -> System:
    """The system with the steps left out that a toggle forbids."""
    names = plain.layout.variables
    waiting = {
        each.name: [n for n, word in enumerate(each.names) if word not in ("absent", "scheduled", "aborted")]
        for each in names
        if each.name.endswith(".state")
    }
    queued = {name: one_of(variable(name), codes) for name, codes in waiting.items()}
    actions = []
    for action in plain.actions:
        guard = action.guard
        if toggle == "HeadNeverWritten" and action.event == "write" and action.subject == 0:
            continue
        if toggle == "DrainsWithQueueOnly" and action.event in ("orphan_end", "filled"):
            guard = guard & any_of(queued.values())
        if toggle == "CompletesAtHeadOnly" and action.event in ("done", "fail"):
            guard = guard & all_of(~queued[f"r{i}.state"] for i in range(action.subject))
        actions.append(replace(action, guard=guard))
    return replace(plain, actions=tuple(actions))


def verdicts(entry: Entry) -> list[LiveVerdict]:
    text = (tla_dir() / entry.cfg).read_text(encoding="utf-8")
    model = origin(entry.system, text)
    spec = SPEC
    for toggle in model.toggles:
        assert toggle in MUTANTS or toggle in GUARDED, toggle
        for witness in MUTANTS.get(toggle, ()):
            spec = apply_witness(spec, witness)
    whole = built(spec, model)
    for toggle in model.toggles:
        whole = without(whole, toggle) if toggle in GUARDED else whole
    specification = re.search(r"SPECIFICATION (\w+)", text)
    assert specification is not None
    if specification[1] in ("CalmSpec", "UnfairFillsSpec"):
        calm = tuple(action for action in whole.actions if action.event in CALM)
        whole = replace(whole, actions=calm)
    fair = [group for group in fairness(whole) if OWED[specification[1]](group)]
    asked = re.findall(r"\b(\w+)Prop\b", text.partition("PROPERTIES")[2])
    return decide(whole, [each for each in liveness(SPEC, whole) if camel(each) in asked], fair)


def camel(each: Liveness) -> str:
    return "".join(part.capitalize() for part in each.name.split("-"))


@pytest.mark.parametrize("name", MODELS)
def test_the_verdict_is_that_of_tlc(name: str) -> None:
    entry = MODELS[name]
    found = verdicts(entry)
    assert found
    assert all(each.holds for each in found) == (entry.result == "success")


def test_nearly_every_liveness_model_of_tlc_is_compared() -> None:
    assert len(MODELS) >= 27
    assert {entry.system for entry in MODELS.values()} == {"admission", "belief", "node", "ranks"}


def alone(spec: Spec = SPEC) -> System:
    return system(spec, "recommended", "admission.alone")


def decided(whole: System, name: str, *left_out: str) -> LiveVerdict:
    wanted = [each for each in liveness(SPEC, whole) if each.name == name]
    return decide(whole, wanted, [g for g in fairness(whole) if not g.name.startswith(left_out)])[0]


def test_every_waiting_request_of_the_shipped_bounds_is_admitted_or_leaves() -> None:
    assert all(each.holds for each in decide(alone(), liveness(SPEC, alone()), fairness(alone())))


@pytest.mark.parametrize("profile", ["seed", "sglang-0.5.23"])
@pytest.mark.parametrize(
    ("mended", "failing"),
    [
        ({"leaky_door": False}, {"progress", "headroom"}),
        ({"headroom_slack": 1}, {"marker-served", "progress", "headroom"}),
        ({"leaky_door": False, "headroom_slack": 1}, set()),
    ],
)
def test_upstream_starves_a_request_by_its_findings_and_by_nothing_else(
    profile: str, mended: dict[str, int | bool], failing: set[str]
) -> None:
    """#37464: pins without headroom wedge admission; an unguarded exit keeps a marker, and pages others wait for."""
    spec = set_constant(SPEC, profile, **mended)
    (configuration,) = asked_for(Wish(requests=2, context=1, pool=2, host_pages=1, anchors=(1, 1)))
    whole = system(spec, profile, configuration)
    found = decide(whole, liveness(spec, whole), fairness(whole))
    assert {each.liveness.name for each in found if not each.holds} == failing


def test_an_orphan_that_never_ends_is_shown_as_a_run_that_stays() -> None:
    whole = alone(apply_witness(SPEC, drop("operation", "end", "orphan")))
    lasso = decided(whole, "orphans-end").lasso
    assert lasso is not None
    assert lasso.loop == ()
    assert [*lasso.trace().rows()][-1][1] == "stays here for ever"
    assert any("orphan" in name for step in lasso.prefix for name in step.changed)


def test_without_fair_passes_and_admission_a_marker_is_never_served() -> None:
    """Admission would serve it, too."""
    assert decided(alone(), "marker-served", "tick").holds
    assert not decided(alone(), "marker-served", "tick", "admit").holds


def test_a_run_that_goes_round_is_shown_with_its_round() -> None:
    chain = system(SPEC, "recommended", "belief.chain")
    lasso = decided(chain, "heals", "write kv0").lasso
    assert lasso is not None
    assert lasso.loop
    shown = [action for _, action, _ in lasso.trace().rows()]
    assert shown[-1] == f"back to the state after step {len(lasso.prefix)}, and so on for ever"


def test_the_round_serves_every_fair_group_and_comes_back() -> None:
    chain = system(SPEC, "recommended", "belief.chain")
    lasso = decided(chain, "heals", "write kv0").lasso
    assert lasso is not None
    state = dict(chain.initial)
    states = [state]
    for step in (*lasso.prefix, *lasso.loop):
        action = chain.actions[step.number]
        assert evaluate(action.guard, state)
        state = {**state, **{name: evaluate(value, state) for name, value in action.updates.items()}}
        states.append(state)
    assert states[-1] == states[len(lasso.prefix)]


def test_a_system_too_large_for_its_graph_is_refused() -> None:
    with pytest.raises(TooLargeError, match="too many for fair liveness"):
        decide(alone(), liveness(SPEC, alone()), fairness(alone()), max_states=100)
