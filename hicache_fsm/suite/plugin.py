"""The pytest plugin: options, and the suite's parameters.  It imports nothing of the suite until it is asked to."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hicache_fsm.suite.protocol import Target

COLLECTED = Path(__file__).with_name("collected.py")
NAMED = pytest.StashKey["Target"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the suite."""
    group = parser.getgroup("hicache", "conformance of a HiCache-like cache")
    group.addoption(
        "--hicache-target",
        metavar="TARGET",
        help="run the suite against it: package.module:factory, or a target that hicache-fsm knows, as runtime",
    )
    group.addoption(
        "--hicache-scenarios", metavar="DIR", type=Path, help="scenarios other than the shipped ones"
    )
    group.addoption("--hicache-examples", metavar="N", type=int, help="random runs (100)")
    group.addoption(
        "--hicache-exact", action="store_true", help="hold the cache to the rules of the profile recommended"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the suite for --hicache-target: alone if nothing else is named, else beside it."""
    if config.getoption("hicache_target"):
        named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
        config.args = [*named, str(COLLECTED)]
    folder = config.getoption("hicache_scenarios")
    if folder and not folder.exists():
        raise pytest.UsageError(
            f"--hicache-scenarios {folder}: not found: name a scenario file or a folder of them"
        )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each scenario."""
    if "hicache_scenario" not in metafunc.fixturenames:
        return
    from hicache_fsm.suite.scenario import ScenarioError, collect, shipped

    folder = getattr(metafunc.cls, "scenarios", None) or metafunc.config.getoption("hicache_scenarios")
    try:
        paths = collect([folder or shipped()])
    except ScenarioError as error:
        raise pytest.UsageError(str(error)) from error
    metafunc.parametrize("hicache_scenario", paths, ids=[path.stem for path in paths])


def pytest_collection_finish(session: pytest.Session) -> None:
    """A --hicache-target that leads nowhere is told once, before any test."""
    if session.config.getoption("hicache_target") and session.items:
        _named(session.config)


@pytest.fixture(scope="class")
def hicache_subject(request: pytest.FixtureRequest) -> "Target":
    """The target of the class, or the one that --hicache-target names."""
    own: Target | None = getattr(request.cls, "target", None)
    if own is not None:
        return own
    if not request.config.getoption("hicache_target"):
        raise pytest.UsageError(f"{request.cls.__name__} has no target: set it, or run with --hicache-target")
    _apply_options(request)
    return _named(request.config)


def _named(config: pytest.Config) -> "Target":
    """The target that the option names, looked up once; it builds a fresh cache for each world."""
    from hicache_fsm.suite.protocol import UnsupportedError
    from hicache_fsm.suite.targets import target

    if NAMED not in config.stash:
        try:
            config.stash[NAMED] = target(config.getoption("hicache_target"))
        except UnsupportedError as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[NAMED]


def _apply_options(request: pytest.FixtureRequest) -> None:
    """What the command line says goes before the class's defaults."""
    examples = request.config.getoption("hicache_examples")
    if examples is not None:
        request.cls.examples = examples
    if request.config.getoption("hicache_exact"):
        request.cls.exact = True
