import re

import pytest

from hicache_fsm.machine import markdown, mermaid
from hicache_fsm.spec import Machine, load_spec

MACHINES = load_spec().machines
every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@every_machine
def test_the_diagram_has_one_edge_per_row_and_marks_first_and_last_states(machine: Machine) -> None:
    first, start, *edges = mermaid(machine).splitlines()
    assert first == "stateDiagram-v2"
    assert start == f"    [*] --> {machine.initial}"
    assert len(edges) == len(machine.transitions) + len(machine.terminal)
    edge = re.compile(r"    \w+ --> (\w+ : \w+( \[[!\w ]+\])?( / [\w, ]+)?|\[\*\])")
    assert [line for line in edges if not edge.fullmatch(line)] == []


def test_an_edge_shows_event_guards_and_effects() -> None:
    lines = mermaid(MACHINES["pin"]).splitlines()
    assert "    unpinned --> pinned : pin [anchored fits] / lock_anchor" in lines
    assert "    unpinned --> lost : evict" in lines
    assert "    released --> [*]" in lines


@every_machine
def test_the_table_has_six_columns_and_names_every_row_once(machine: Machine) -> None:
    lines = markdown(machine).splitlines()
    assert {line.count("|") for line in lines} == {7}
    sources = [line.split("|")[2] for line in lines[2:]]
    assert sum(cell.count("`") // 2 for cell in sources) == len(machine.transitions)


def test_rows_that_differ_only_in_their_source_share_a_line() -> None:
    assert (
        "| `pin` | `unpinned`, `capped` | `anchored` `fits` | `pinned` | `lock_anchor` |  |"
        in markdown(MACHINES["pin"]).splitlines()
    )
