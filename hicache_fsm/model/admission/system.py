"""The admission system put together."""

from hicache_fsm.model.admission.actions import Steps
from hicache_fsm.model.admission.checks import Checks
from hicache_fsm.model.admission.meaning import admission_tables
from hicache_fsm.model.admission.scope import Scope, initial, layout
from hicache_fsm.model.build import start
from hicache_fsm.model.system import System
from hicache_fsm.spec.types import Spec


def admission(spec: Spec, profile: str, name: str, configuration: str, scope: Scope) -> System:
    """Requests prefetching under `scope`; with retries off, only disabled-inert is checked."""
    prefetch, pin = spec.machines["prefetch"], spec.machines["pin"]
    variables = layout(scope, prefetch, pin)
    begin = start(variables)
    checks = Checks(scope, prefetch, pin, begin)
    return System(
        name,
        configuration,
        profile,
        variables,
        initial(scope, prefetch, pin),
        Steps(scope, admission_tables(spec, scope), variables, begin).all(),
        checks.states(),
        checks.steps(),
        checks.goals(),
    )
