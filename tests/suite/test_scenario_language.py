"""Lines of a scenario: what is an event, what is a condition, and what is said of neither."""

import pytest

from hicache_fsm.suite.language import WORDS, LanguageError, parse, render, words_table
from hicache_fsm.suite.predicate import PredicateError, UntoldError, predicate
from hicache_fsm.suite.protocol import Event, Observed, RequestView, World

WORLD = World({"r": ("a",)})


@pytest.mark.parametrize(
    "line",
    ["enq r", "hit r 4 q=2", "abort r why=client", "evict @p2", "load @p2 by=x", "write a, swa.b", "tick 3", "tick",
     "wack a ok=no", "store 1, 2"],
)  # fmt: skip
def test_an_event_is_read_and_written_alike(line: str) -> None:
    assert render(parse(line)) == line


def test_an_event_has_its_subjects_node_amount_and_facts() -> None:
    assert parse("load @p by=a") == Event("load", (), "p", None, {"by": "a"})
    assert parse("hit r 4 q=2") == Event("hit", ("r",), "", 4, {"q": "2"})


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "empty"),
        ("hti r", 'did you mean "hit"'),
        ("xyzzy r", "use one of enq"),
        ("enq", "concerns one request"),
        ("enq r, s", "concerns one request"),
        ("enq r s", "separated by commas"),
        ("write a,", "nothing after the comma"),
        ("write , a", "a comma without a name"),
        ("tick r", "what is"),
        ("park r 3", "takes no number"),
        ("hit r 3 4", "takes one number"),
        ("abort r because=x", 'no fact "because"'),
        ("abort r why=boredom", "client, queue_limit"),
        ("hit r @n", "concerns no node"),
        ("evict n", "what is"),
        ("evict", "needs a node"),
        ("load @n", "by=a"),
        ("xfer r", "needs a number"),
    ],
)
def test_what_is_no_event_is_refused_with_the_mend(line: str, says: str) -> None:
    with pytest.raises(LanguageError, match=says):
        parse(line)


def test_a_condition_compares_what_is_observed() -> None:
    now = Observed(
        3, {"r": RequestView("missed", marker=True)}, {"r": 2}, pinned=1, pin_cap=2, believed=frozenset("a")
    )
    for text in (
        'state(r) == "missed" and marker(r)',
        "asked(r) == 2 and not question(r)",
        "pinned <= pin_cap",
        "believed(a) and not believed(swa.a)",
        'state(r) in ("missed", "pending")',
        "now - 1 == 2",
        "host == 16",
    ):
        assert predicate(text).holds(now, WORLD), text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('state(r) == "mised"', 'did you mean "missed"'),
        ("stat(r)", 'did you mean "state"'),
        ("pined == 0", 'did you mean "pinned"'),
        ("__import__('os')", "nothing that is observed"),
        ("asked(r).real == 1", "compares what is observed"),
        ("[x for x in y]", "compares what is observed"),
        ("state(r) ==", "is no condition"),
        ("1 * 2 == 2", "compares what is observed"),
        ("state(f(r))", "compares what is observed"),
    ],
)
def test_what_is_no_condition_is_refused_and_never_evaluated(text: str, says: str) -> None:
    with pytest.raises(PredicateError, match=says):
        predicate(text)


def test_a_condition_on_what_is_not_told_has_no_value() -> None:
    with pytest.raises(UntoldError, match="host_free"):
        predicate("host_free == 3").holds(Observed(0, {}), WORLD)


def test_the_page_has_every_word(pytestconfig: pytest.Config) -> None:
    page = (pytestconfig.rootpath / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert words_table() in page
    assert len(WORDS) > 40
