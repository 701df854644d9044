"""Owns the way from `--app` and `--url` to an app and its store, and who may look into which."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from windlass.app import Windlass
from windlass.cli import places
from windlass.core.errors import ConfigError, WindlassError
from windlass.settings import read_dotenv

T = TypeVar("T")
VARIABLE = "WINDLASS_APP"


def visit(
    app: str | None, url: str | None, work: Callable[[Windlass], Coroutine[Any, Any, T]]
) -> T:
    """Do something with a store that exists already, and close it.

    Raises:
        WindlassError: there is none, or it cannot be seen from here.
    """
    chosen = choose(app, url)
    places.refuse_private(chosen.store)
    return asyncio.run(_visit(chosen, work))


def choose(app: str | None, url: str | None) -> Windlass:
    """Return the app whose store is meant: the one named, else one that has a URL and no handlers.

    A URL on the command line says all that is needed, so WINDLASS_APP is then not imported.
    """
    reference = app or (None if url else reference_in_force())
    chosen = Windlass() if reference is None else load(reference)
    chosen.configure(url=url)
    return chosen


def reference_in_force() -> str | None:
    """Return what WINDLASS_APP says, in the environment or in `.env`."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE] or None
    return read_dotenv(Path.cwd() / ".env").get(VARIABLE) or None


def load(reference: str) -> Windlass:
    """Import the app that `module:attribute` names; the current directory is looked at first.

    Raises:
        ConfigError: there is no such app, or importing it failed.
    """
    check(reference)
    module_name, _, path = reference.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    module = _import(module_name)
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, Windlass):
        raise ConfigError(_no_app(reference, path, vars(module)))
    found.home = reference  # Where the child processes of a worker find it.
    return found


def check(reference: str) -> None:
    """Refuse as wrong usage what cannot name an app, wherever one looks for it."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path or "/" in module_name or module_name.endswith(".py"):
        # Imported here, because a worker's process never needs it.
        import typer

        raise typer.BadParameter(
            f"{reference!r} names no app; write module:attribute, like shop.jobs:app"
        )


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except WindlassError as error:
        raise ConfigError(f"importing {name!r} failed: {error}") from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {name!r}; it was looked for in {Path.cwd()} and in this "
                "Python's packages"
            ) from error
        raise _broken(name, error) from error
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> ConfigError:
    told = f"{type(error).__qualname__}: {error}"
    return ConfigError(f"importing {name!r} failed: {told} (windlass --debug shows where)")


def _no_app(reference: str, path: str, names: dict[str, Any]) -> str:
    apps = [name for name, value in names.items() if isinstance(value, Windlass)]
    module = reference.partition(":")[0]
    if apps:
        return f"{reference!r} is not a Windlass app; did you mean {module}:{apps[0]}?"
    return (
        f"{reference!r} is not a Windlass app, and there is none in {module!r}; "
        f"write there: {path} = Windlass()"
    )


async def _visit(app: Windlass, work: Callable[[Windlass], Coroutine[Any, Any, T]]) -> T:
    await places.require(app.store)
    try:
        await app.store.open()
        return await work(app)
    finally:
        await app.aclose()
