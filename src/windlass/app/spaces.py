"""Owns what an app with spaces may do: a worker serves one, and nothing shared crosses one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from windlass.core.errors import ConfigError
from windlass.core.jobs.spaces import DEFAULT_SPACE, Space, one_space_of, space_of
from windlass.core.jobs.unique import Unique
from windlass.core.schedules.definition import Schedule
from windlass.handlers.registry import Registry
from windlass.settings import Settings
from windlass.store import Store, store_of_space

_APART = "use one for each space, or put the queues into one space"


def worker_store(store: Store, settings: Settings, registry: Registry) -> Store:
    """Return the store of the space that a worker serves.

    Raises:
        ConfigError: no space is chosen, a queue is in another one, or a limit or a breaker would
            be shared by several.
    """
    if not settings.spaces:
        return store
    names = ", ".join([DEFAULT_SPACE, *(space.name for space in settings.spaces)])
    if not settings.space:
        raise ConfigError(
            f"space must be one of {names} for a worker, got none; start a worker for each with "
            "--space, WINDLASS_SPACE or space="
        )
    for served in settings.queues:
        if (other := space_of(settings.spaces, served.queue)) != settings.space:
            raise ConfigError(
                f"queues must be in the worker's space {settings.space}, got {served.queue!r} of "
                f"space {other}; start another worker with --space {other}"
            )
    _check_shared(registry, settings.spaces)
    return store_of_space(store, settings.space)


def schedules_in(settings: Settings, declared: Mapping[str, Schedule]) -> Mapping[str, Schedule]:
    """Return the schedules whose jobs belong to the space that a worker serves."""
    return {
        name: schedule
        for name, schedule in declared.items()
        if not settings.spaces or space_of(settings.spaces, schedule.job.queue) == settings.space
    }


def check_unique(
    spaces: tuple[Space, ...], registry: Registry, kind: str, rule: Unique, queue: str
) -> None:
    """Reject a job whose unique key others of its kind could hold in another space.

    Raises:
        ConfigError: its queue is in another space than that of its kind.
    """
    if rule.scope == "kind" and kind in registry:
        one_space_of(
            spaces,
            (registry[kind].queue, queue),
            f"jobs of {kind!r} with a unique key",
            "use Unique(..., scope='queue'), or a queue of the same space",
        )


def _check_shared(registry: Registry, spaces: tuple[Space, ...]) -> None:
    users: dict[str, list[str]] = defaultdict(list)
    for kind in registry:
        registration = registry[kind]
        if registration.shared_limit is not None:
            users[f"kinds with limit {registration.shared_limit!r}"].append(registration.queue)
    for kind, rule in registry.rules().items():
        users[f"kinds with breaker {rule.name!r}"].append(registry[kind].queue)
    for what, queues in users.items():
        one_space_of(spaces, queues, what, _APART)
