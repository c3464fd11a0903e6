"""What is proved for all quantities, and that each proof can fail."""

from dataclasses import replace

import pytest

from hicache_fsm.spec import Spec, Witness, apply_witness, load_spec, set_constant

pytest.importorskip("z3")

from hicache_fsm.prove import PROVABLE, Proof, prove
from hicache_fsm.prove.induct import Induction
from hicache_fsm.prove.run import cases

SPEC = load_spec()
CASES = {case.system.name: case for case in cases(SPEC, "recommended")}
LEMMAS = sorted({c.name for case in CASES.values() for c in case.theory.conjuncts if c.is_lemma})

NEVER_TAKEN = {"pin.lapse r0 [holder_gone]", "pin.lapse r1 [holder_gone]"}
"""No attempt that is gone holds a pin, so no lease runs out."""

NEVER_LOADED = {f"node.load n{n} [unclaimed] by l{loader}" for n in (0, 1) for loader in (0, 1)}
"""A loading node is claimed."""

GUARDS = [
    ("pin", "pin", "fits", "pin-cap"),
    ("prefetch", "sweep", "due", "paced"),
    ("prefetch", "sweep", "budget_left", "attempts-bounded"),
    ("prefetch", "lose_match", "budget_left", "attempts-bounded"),
    ("prefetch", "hit", "room", "conservation"),
    ("node", "load", "unclaimed", "load-exclusive"),
    ("belief", "discard", "kept", "belief-evidence"),
]


def failing(spec: Spec, invariant: str) -> Proof:
    (proof,) = prove(spec, "recommended", [invariant]).proofs
    assert proof.verdict == "not proved", proof.why
    return proof


def readable(proof: Proof) -> None:
    """The proof shows two states and a step, or a state that no step leads on from."""
    assert proof.broken is not None
    shown = proof.broken.counterexample
    assert shown is not None
    assert shown.before.keys() == shown.after.keys()
    told = ["stuck"] if shown.way else ["step", "then"]
    assert [line.split()[0] for line in str(shown).splitlines() if not line.startswith("  ")] == [
        "with", "state", *told, "breaks",
    ]  # fmt: skip


def test_everything_is_proved_under_the_recommended_profile() -> None:
    report = prove(SPEC, "recommended")
    assert {proof.invariant: proof.verdict for proof in report.proofs} == dict.fromkeys(PROVABLE, "proved")
    assert report.exit_code == 0


def test_every_invariant_of_the_spec_has_a_proof() -> None:
    assert {*PROVABLE} == {*SPEC.invariants}


@pytest.mark.slow
def test_it_holds_for_three_requests_too() -> None:
    assert prove(SPEC, "recommended", requests=3, timeout_s=120).exit_code == 0


@pytest.mark.parametrize("profile", ["seed", "sglang-0.5.23"])
def test_upstream_fails_exactly_where_its_findings_are(profile: str) -> None:
    report = prove(SPEC, profile)
    verdicts = {proof.invariant: proof.verdict for proof in report.proofs}
    pinned = {f.invariant for f in SPEC.profiles[profile].findings if f.shown_by == "search"}
    assert verdicts == {i: "upstream finding" if i in pinned else "proved" for i in PROVABLE}
    for proof in report.proofs:
        if proof.verdict != "proved":
            readable(proof)


@pytest.mark.parametrize("invariant", PROVABLE)
def test_the_witness_of_an_invariant_breaks_its_proof(invariant: str) -> None:
    proof = failing(apply_witness(SPEC, SPEC.invariants[invariant].witness), invariant)
    readable(proof)
    assert proof.broken is not None
    assert proof.broken.counterexample is not None
    assert proof.broken.counterexample.plausible


@pytest.mark.parametrize(("machine", "event", "guard", "invariant"), GUARDS)
def test_a_dropped_guard_breaks_a_proof(machine: str, event: str, guard: str, invariant: str) -> None:
    witness = Witness("drop", "guard", machine=machine, event=event, name=guard)
    if guard == "kept":
        witness = Witness("drop", "guard", machine=machine, event=event, name=guard, dest="believed")
    readable(failing(apply_witness(SPEC, witness), invariant))


@pytest.mark.parametrize("lemma", LEMMAS)
def test_without_a_lemma_some_proof_fails_with_a_step(lemma: str) -> None:
    for case in CASES.values():
        theory = case.theory
        claims = (*theory.conjuncts, *theory.steps, *theory.ways)
        leaning = [each.name for each in claims if lemma in each.needs]
        induction = Induction(case.system, case.theory.without(lemma), 20)
        failed = (each for each in induction.prove(leaning) if each.answer == "FAILED")
        if (broken := next(failed, None)) is not None:
            assert broken.counterexample is not None
            return
    pytest.fail(f"no proof needs {lemma}")


def test_a_goal_out_of_reach_is_shown_as_a_state_without_a_way_on() -> None:
    proof = failing(apply_witness(SPEC, SPEC.invariants["progress"].witness), "progress")
    assert proof.broken is not None
    shown = proof.broken.counterexample
    assert shown is not None
    assert shown.way == "the orphan of r0 ends"
    assert shown.action == ""


WAYS = [
    ("prefetch", "admit", "queued", "headroom"),
    ("prefetch", "unpark", "parked", "headroom"),
    ("prefetch", "miss", "probing", "headroom"),
    ("prefetch", "admit", "exhausted", "progress"),
    ("belief", "write", "unknown", "heals"),
    ("belief", "stored", "writing", "heals"),
]


@pytest.mark.parametrize(("machine", "event", "source", "invariant"), WAYS)
def test_a_row_that_the_way_to_a_goal_takes_is_missed(
    machine: str, event: str, source: str, invariant: str
) -> None:
    """Without it some state has no way on: no other row does as well."""
    witness = Witness("drop", "transition", machine=machine, event=event, source=source)
    for case in cases(apply_witness(SPEC, witness), "recommended", requests=1):
        ways = [way.name for way in case.theory.ways if way.invariant == invariant]
        found = Induction(case.system, case.theory, 20).prove(ways)
        if any(each.answer == "FAILED" and each.counterexample for each in found):
            return
    pytest.fail(f"{invariant} needs no {event} from {source}")


def test_drains_without_agreement_break_lockstep_for_any_number_of_ranks() -> None:
    readable(failing(set_constant(SPEC, "recommended", agreed_drains=False), "lockstep"))


def test_no_step_is_proved_from_nothing() -> None:
    dead = {name: set(Induction(case.system, case.theory, 20).dead()) for name, case in CASES.items()}
    assert dead["1 request"] | dead["2 requests"] == NEVER_TAKEN
    assert dead["2 nodes"] == NEVER_LOADED
    assert dead["a chain of any length"] == set()
    assert dead["any number of ranks"] == set()


def test_a_question_that_takes_too_long_is_undetermined() -> None:
    report = prove(SPEC, "recommended", ["pin-owned"], timeout_s=0.001)
    assert report.proofs[0].verdict == "undetermined"
    assert report.exit_code == 3


def test_a_finding_that_no_longer_shows_is_reported() -> None:
    spec = set_constant(SPEC, "seed", headroom_slack=1, leaky_door=False)
    report = prove(spec, "seed", ["headroom"])
    assert report.proofs[0].verdict == "finding gone"
    assert report.exit_code == 1


def test_a_proof_that_leans_on_something_broken_is_no_proof() -> None:
    machine = SPEC.machines["pin"]
    rows = tuple(row for row in machine.transitions if row.event != "unpin")
    spec = replace(SPEC, machines={**SPEC.machines, "pin": replace(machine, transitions=rows)})
    proof = failing(spec, "asked-armed")
    assert "leans on" in proof.why
