"""Scenario files: read, written, and refused with the place and the mend."""

from pathlib import Path

import pytest

from hicache_fsm.suite.language import parse
from hicache_fsm.suite.protocol import World
from hicache_fsm.suite.scenario import Scenario, ScenarioError, collect, dumps, load, loads, shipped

GOOD = '''id = "a-story"
about = "What happens."
upstream = ["#1"]
steps = """
enq r            # and asks
!hit r 3
?park r
admit r within 4
expect state(r) == "missed"
holds paced
"""

[world]
prompts = { r = "a b" }
interval = 1
'''


def test_a_file_is_read_with_its_lines() -> None:
    story = loads(GOOD)
    assert [step.line for step in story.steps] == [5, 6, 7, 8, 9, 10]
    assert [step.kind for step in story.steps] == ["event"] * 4 + ["expect", "holds"]
    refused, optional, within = story.steps[1:4]
    assert (refused.refused, optional.optional, within.within) == (True, True, 4)
    assert story.world == World({"r": ("a", "b")}, interval=1)


def test_a_scenario_is_written_as_it_is_read() -> None:
    again = loads(dumps(loads(GOOD)))
    first = loads(GOOD)
    assert (again.id, again.world, again.upstream) == (first.id, first.world, first.upstream)
    assert [step.text for step in again.steps] == [step.text for step in first.steps]


def test_a_sequence_of_events_becomes_a_scenario_that_asks_for_nothing() -> None:
    events = [parse("enq r"), parse("hit r 1 q=2")]
    made = Scenario.of("found", "A finding.", World({"r": ("a",)}, host=3, storage=frozenset("a")), events)
    read = loads(dumps(made))
    assert read.events == tuple(events)
    assert read.world == made.world
    assert all(step.optional for step in read.steps)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("enq r  ", "enk r  ", 'file:5: "enk" is no event: did you mean "enq"'),
        ("enq r  ", "enq q  ", 'file:5: "q" in "enq q" is nobody here: the world has r'),
        ('== "missed"', '== "mist"', 'file:9: "mist" in .* is no state'),
        ("state(r)", "state(q)", 'file:9: "q" in .* is nobody here'),
        ("holds paced", "holds pased", 'file:10: "pased" is no invariant'),
        ("within 4", "within soon", "file:8: .*needs a number of passes"),
        ('id = "a-story"', "", 'file:1: "id" is missing'),
        ('about = "What happens."', "about = 3", 'file:2: "about" is missing or is no text'),
        ('["#1"]', "[1]", "file:3: upstream lists reports"),
        ("interval = 1", "intervall = 1", 'file:15: a world has no "intervall"'),
        ("interval = 1", "interval = -1", "file:15: interval counts from 0 up"),
        ("interval = 1", 'mode = "l3"', "file:15: mode is one of buffer_only, cache"),
        ("interval = 1", "cap_fraction = 2", "file:15: cap_fraction is a share"),
        ("interval = 1", "storage = 3", "file:15: storage names pages"),
        ('{ r = "a b" }', '{ r = "a b", s = "b" }', 'file:14: s: page "b" follows two different pages'),
        ('prompts = { r = "a b" }', "", "file:13: a world needs prompts"),
        ("[world]", "[wurld]", 'file:13: unknown key "wurld"'),
        ("upstream", "upstraem", "unknown key"),
        ('about = "What', "about = What", "file: not TOML"),
    ],
)
def test_what_is_no_scenario_is_refused_with_the_place_and_the_mend(old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(ScenarioError, match=says):
        loads(GOOD.replace(old, new, 1), "file")


def test_a_scenario_drives_something() -> None:
    with pytest.raises(ScenarioError, match="no event"):
        loads(
            'id = "x"\nabout = "x"\nupstream = []\nsteps = """\nholds paced\n"""\n[world]\nprompts = { r = "a" }\n'
        )


def test_a_file_is_called_as_its_scenario(tmp_path: Path) -> None:
    path = tmp_path / "another.toml"
    path.write_text(GOOD, encoding="utf-8")
    with pytest.raises(ScenarioError, match='call it "another"'):
        load(path)


def test_a_path_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="not found"):
        collect([tmp_path / "none.toml"])
    with pytest.raises(ScenarioError, match="no scenario in it"):
        collect([tmp_path])


def test_every_shipped_file_is_read_and_written_alike() -> None:
    files = collect([shipped()])
    assert len(files) >= 45
    for path in files:
        story = load(path)
        assert dumps(loads(dumps(story))) == dumps(story)
