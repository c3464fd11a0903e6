import shutil
from pathlib import Path

import pytest

from hicache_fsm.spec import spec_dir

LAMP = """\
machine = "lamp"
about = "A lamp that burns out."
key = ["room"]
initial = "off"

[states.off]
about = "Dark."
upstream."0.5.23" = ["lamp in no dictionary"]
[states.on]
about = "Lit."
[states.dead]
about = "Burnt out."
terminal = true

[events.press]
by = "client"
about = "Someone presses the switch."
[events.burn]
by = "engine"
about = "The filament gives way."

[guards.powered]
kind = "fact"
about = "There is current."

[effects.shine]
about = "Give light."
[effects.fade]
about = "Stop giving light."

[[transitions]]
event = "press"
source = ["off"]
guard = ["powered"]
dest = "on"
effects = ["shine"]
[[transitions]]
event = "press"
source = ["off"]
guard = ["!powered"]
dest = "="
[[transitions]]
event = "press"
source = ["on"]
dest = "off"
effects = ["fade"]
[[transitions]]
event = "burn"
source = ["off", "on"]
dest = "dead"
effects = ["fade"]
why = "Nothing lasts."
"""

INVARIANTS = """\
[[invariants]]
id = "dark-when-dead"
number = 1
kind = "state"
systems = ["house"]
machines = ["lamp"]
sentence = "A dead lamp gives no light."
why = "Burning out stops the light."
checked = ["search"]
witness = { drop = "effect", machine = "lamp", event = "burn", name = "fade" }
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The directory of a small, valid spec."""
    (tmp_path / "lamp.toml").write_text(LAMP)
    (tmp_path / "invariants.toml").write_text(INVARIANTS)
    (tmp_path / "profiles").mkdir()
    shutil.copy(spec_dir() / "profiles" / "recommended.toml", tmp_path / "profiles")
    return tmp_path
