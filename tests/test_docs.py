"""The documentation says what the code does."""

import doctest
import json
import re
from pathlib import Path

import pytest

from hicache_fsm.pages import invariants_page, machines_page
from hicache_fsm.spec import load_spec

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def test_the_page_of_machines_is_what_the_spec_says() -> None:
    assert (ROOT / "docs/machines.md").read_text() == machines_page(load_spec()), "run `make docs`"


def test_the_page_of_invariants_is_what_the_spec_says() -> None:
    assert (ROOT / "docs/invariants.md").read_text() == invariants_page(load_spec()), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_names_the_make_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`make (\w+)`", (ROOT / "README.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_is_what_happens(page: Path) -> None:
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_the_page_of_models_has_the_counts_of_the_manifest() -> None:
    rows = re.findall(
        r"^\| `(MC\w+)` \|[^|]*\| ([\d ]+) \| (\d+) \|", (ROOT / "docs/tla.md").read_text(), re.MULTILINE
    )
    models = {each["name"]: each for each in json.loads((ROOT / "tla/manifest.json").read_text())["models"]}
    shown = {name: (int(distinct.replace(" ", "")), int(depth)) for name, distinct, depth in rows}
    assert len(shown) > 20
    assert shown == {name: (models[name]["distinct"], models[name]["depth"]) for name in shown}
