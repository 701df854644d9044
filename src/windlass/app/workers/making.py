"""Owns how an app becomes a worker: its settings, handlers, hooks and store in one object.

Only programs that run a worker import this, and with it the worker's engine and services.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from windlass.app.isolation.recipe import recipe_of
from windlass.app.registration.importing import load_imports
from windlass.app.spaces import schedules_in, worker_store
from windlass.app.workers.options import worker_options
from windlass.app.workflows import flow as flows
from windlass.app.workflows import pipeline as pipelines
from windlass.core.errors import ConfigError
from windlass.core.values.names import check_name
from windlass.observability.meters import Meters
from windlass.process.supervisor_channel import SupervisorChannel
from windlass.settings import Resolved
from windlass.worker import Worker
from windlass.worker.isolation.import_guard import refuse_worker

if TYPE_CHECKING:
    from windlass.app.app import Windlass

W = TypeVar("W", bound=Worker)


class AnnouncedWorker(Worker):
    """A worker that says when it has started."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def _start(self) -> None:
        super()._start()
        self.started.set_result(None)


def make_worker(
    app: Windlass,
    worker_class: type[W],
    resolved: Resolved,
    meters: Callable[[], Meters] | None,
    *,
    name: str,
    burst: bool,
    channel: SupervisorChannel | None,
) -> W:
    """Return a worker for an app that is not running yet.

    Raises:
        ConfigError: a setting is wrong, leaves no queue to serve, or no key for secrets.
    """
    refuse_worker()
    if name:
        check_name("worker", name)
    settings = resolved.settings
    if settings.url != app.settings.url:
        raise ConfigError("a worker uses its app's store; write app.configure(url=...)")
    load_imports(settings.imports)
    app.check_secrets()
    flows.register(app)
    pipelines.register(app)
    return worker_class(
        store=worker_store(app.store, settings, app.registry),
        registry=app.registry,
        options=worker_options(resolved, name, burst=burst, embedded=channel is None),
        meters=Meters() if meters is None else meters(),
        middleware=app.layers,
        hooks=app.worker_hooks,
        providers=app.providers,
        channel=channel,
        recipe=lambda: recipe_of(app, settings),
        schedules=schedules_in(settings, app.schedules.declared),
        ids=app.ids.next,
    )
