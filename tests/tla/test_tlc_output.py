"""TLC's words as values, without a JVM."""

import tomllib

import pytest

from hicache_fsm.explore import Trace, TraceStep
from hicache_fsm.tlc import TlcError
from hicache_fsm.tlc.counterexample import to_counterexample
from hicache_fsm.tlc.output import behaviour, counts, messages, state
from hicache_fsm.tlc.values import flatten, parse, show

LASSO = """@!@!@STARTMSG 2116:1 @!@!@
Temporal properties were violated.
@!@!@ENDMSG 2116 @!@!@
@!@!@STARTMSG 2217:4 @!@!@
1: <Initial predicate>
/\\ f = [r0 |-> "idle", r1 |-> "idle"]
/\\ x = 0

@!@!@ENDMSG 2217 @!@!@
@!@!@STARTMSG 2217:4 @!@!@
2: <Go line 6, col 10 to line 6, col 70 of module Counter>
/\\ f = [r0 |-> "idle", r1 |-> "busy"]
/\\ x = 0

@!@!@ENDMSG 2217 @!@!@
@!@!@STARTMSG 2122:4 @!@!@
1: Back to state: <Rest line 6, col 10 to line 6, col 70 of module Counter>
@!@!@ENDMSG 2122 @!@!@
"""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", -3),
        ("TRUE", True),
        ('"a \\"b\\""', 'a "b"'),
        ("<<1, {2, 3}>>", (1, frozenset({2, 3}))),
        ('[r0 |-> "idle", r1 |-> <<>>]', {"r0": "idle", "r1": ()}),
        ("(0 :> TRUE @@ 1 :> FALSE)", {0: True, 1: False}),
        ('(<<"kv", 0>> :> "unknown")', {"<<kv, 0>>": "unknown"}),
        ("1..3", frozenset({1, 2, 3})),
        ("{}", frozenset()),
        ("m1", "m1"),
    ],
)
def test_a_printed_value_is_read(text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("text", ["", "<<1", "[a |->", "1 2", "{1, }", "? 1"])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(TlcError, match="not a TLA\\+ value"):
        parse(text)


def test_a_value_is_flattened_to_its_scalars() -> None:
    flat = dict(flatten("v", parse("[a |-> <<1, TRUE>>, b |-> {2, 1}]")))
    assert flat == {"v[a][1]": 1, "v[a][2]": True, "v[b]": "{1, 2}"}
    assert show(True) == "TRUE"


def test_a_state_of_one_variable_has_no_conjunction_sign() -> None:
    assert state("x = 4") == {"x": 4}


def test_a_lasso_says_where_it_goes_back_to() -> None:
    found = behaviour(messages(LASSO.splitlines(keepends=True)))
    assert len(found) == 1
    assert (found.loops_to, found.back) == (1, "Rest")
    rows = found.trace("Busy is violated").rows()
    assert rows[0] == ("1", "Go", "f[r1]: idle → busy")
    assert rows[1][1] == "Rest: back to the initial state, and so on for ever"


def test_nested_messages_come_out_inner_first() -> None:
    inner = ["@!@!@STARTMSG 5006:0 @!@!@", "inner", "@!@!@ENDMSG 5006 @!@!@"]
    lines = ["@!@!@STARTMSG 1000:1 @!@!@", "outer", *inner, "@!@!@ENDMSG 1000 @!@!@"]
    assert [message.text for message in messages(lines)] == ["inner", "outer"]


def test_counts_are_read_from_progress_and_from_the_end() -> None:
    assert counts("Progress(4): 12 states generated (5 s/min), 1,009 distinct states found, 3 left") == (
        12,
        1009,
    )
    assert counts("29 states generated, 16 distinct states found, 0 states left on queue.") == (29, 16)
    assert counts("nothing") is None


def test_a_counterexample_becomes_a_file_of_events_and_requests() -> None:
    steps = (
        TraceStep("Hit", (), {"state[0]": ("probing", "parked")}),
        TraceStep("prefetch.abort r1 [leaky_door]", (), {"r1.state": ("queued", "aborted")}),
        TraceStep("Tick", (), {}),
        TraceStep("stays here for ever", (), {}),
    )
    counterexample = tomllib.loads(to_counterexample(Trace('"x" is violated', steps), "case"))
    assert counterexample["counterexample"] == "case"
    assert [(step["event"], step.get("request")) for step in counterexample["steps"]] == [
        ("hit", "r0"),
        ("abort", "r1"),
        ("tick", None),
    ]
