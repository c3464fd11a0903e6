"""The documentation says what the code does."""

import doctest
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
