"""Owns the pytest plugin: fixtures for an app and its jobs, and a guard for the real store.

pytest finds it by its entry point. Leave it out with `-p no:windlass`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from windlass.app import Windlass
from windlass.settings import DEFAULT, Resolved, Settings
from windlass.store import Store, store_at
from windlass.testing.travel import Travel, travel

_APP = "windlass_app"
_REAL_STORE = "windlass_real_store"
_VARIABLE = "WINDLASS_APP"
_make_store = Windlass.make_store


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the configuration file."""
    parser.addini(_APP, "The app of the fixtures windlass_app and jobs, as module:attribute.")
    parser.addini(
        _REAL_STORE,
        "Whether tests may use the store that windlass.db, .env or a settings file names.",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Let apps keep their jobs in memory instead of the store of the program."""
    if not config.getini(_REAL_STORE):
        Windlass.make_store = staticmethod(guarded_store)  # type: ignore[method-assign]


def pytest_unconfigure() -> None:
    """Let apps use their own stores again."""
    Windlass.make_store = staticmethod(_make_store)  # type: ignore[method-assign]


def guarded_store(resolved: Resolved) -> Store:
    """Make the store of an app under test: in memory, unless the test or its shell named one.

    The default, `.env` and settings files name the store of the program. Code and the environment
    name one that is meant, like the database of a CI.
    """
    source = resolved.sources["url"].source
    of_the_program = source == DEFAULT or ": " in source
    if of_the_program or resolved.settings.url == Settings().url:
        return store_at(replace(resolved.settings, url="memory://"))
    return _make_store(resolved)


@pytest.fixture
def windlass_app(pytestconfig: pytest.Config) -> Windlass:
    """Return the app that `windlass_app` in pytest's configuration names, else WINDLASS_APP.

    Override it in conftest.py for an app that is made by a function.
    """
    reference = pytestconfig.getini(_APP) or os.environ.get(_VARIABLE, "")
    module, _, attribute = reference.partition(":")
    if not module or not attribute:
        raise pytest.UsageError(
            f"{_APP} in the configuration of pytest must be module:attribute, got {reference!r}; "
            "write it like shop.jobs:app, or define a fixture windlass_app in conftest.py"
        )
    app = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(app, Windlass):
        raise pytest.UsageError(
            f"{_APP} must name an app, got {reference!r}; {module} has no app {attribute!r}"
        )
    return app


@pytest.fixture
def jobs(windlass_app: Windlass) -> Iterator[Travel]:
    """Put the app on an empty memory store whose clock the test moves: `jobs.advance("1d")`."""
    with travel(windlass_app) as travelling:
        yield travelling
