"""What scenarios, stateful tests and campaigns run against, by name."""

from importlib import import_module
from typing import Any, Final, cast

from hicache_fsm.sglang.install import VERSIONS
from hicache_fsm.suite.protocol import Target, UnsupportedError
from hicache_fsm.suite.targets.runtime import RuntimeTarget

NAMES: Final = ("runtime", "model", *(f"sglang-{version}" for version in VERSIONS))


def target(name: str, profile: str = "recommended", **options: Any) -> Target:
    """The target of that name; `package.module:factory` is called without arguments.

    `profile` and `options` are the runtime's and the model's; a real SGLang has its own rules.  Raises
    UnsupportedError for a name that leads nowhere, with the names there are.
    """
    match name.partition("-"):
        case ("runtime", "", ""):
            return RuntimeTarget(profile, **options)
        case ("model", "", ""):
            from hicache_fsm.suite.targets.model import ModelTarget

            return ModelTarget(profile, **options)
        case ("sglang", "-", version):
            return _sglang(version)
    module, colon, factory = name.partition(":")
    if not colon:
        raise UnsupportedError(f'no target "{name}": use {", ".join(NAMES)} or package.module:factory')
    try:
        made = getattr(import_module(module), factory)()
    except (ImportError, AttributeError, TypeError) as error:
        raise UnsupportedError(f'no target "{name}": {error}') from error
    if not hasattr(made, "build"):
        raise UnsupportedError(f'no target "{name}": what it returns has no `build`, see docs/suite.md')
    return cast(Target, made)


def _sglang(version: str) -> Target:
    if version not in VERSIONS:
        raise UnsupportedError(f"no target for SGLang {version}: use one of {', '.join(VERSIONS)}")
    from hicache_fsm.suite.targets.sglang import make

    return make(version)
