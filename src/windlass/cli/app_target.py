"""Owns the way from `--app` and `--url` to an app and its store."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from windlass.app import Windlass
from windlass.app.registration.importing import exit_refused
from windlass.core.errors import ConfigError, ImportFailed, WindlassError
from windlass.settings import read_dotenv
from windlass.store import Store

T = TypeVar("T")
VARIABLE = "WINDLASS_APP"


def visit(
    app: str | None,
    url: str | None,
    work: Callable[[Windlass], Coroutine[Any, Any, T]],
    *,
    space: str | None = None,
    reason: str = "",
) -> T:
    """Run an action on a store that exists already, and close it.

    The audit log records with it the user of this process, and the reason.

    Raises:
        WindlassError: there is none, or it cannot be seen from here.
    """
    chosen = choose(app, url, space)
    refuse_private(chosen.store)
    by = chosen.control.actor.by
    chosen.control = chosen.control.acting_as(by, via="cli", reason=reason)
    return asyncio.run(_visit(chosen, work))


def choose(app: str | None, url: str | None, space: str | None = None) -> Windlass:
    """Return the app whose store is meant: the one named, else one with a URL and no handlers.

    With a URL on the command line, WINDLASS_APP is not imported.
    """
    reference = app or (None if url else reference_in_force())
    chosen = Windlass() if reference is None else load(reference)
    chosen.configure(url=url, space=space)
    return chosen


def reference_in_force() -> str | None:
    """Return the value of WINDLASS_APP, in the environment or in `.env`."""
    return os.environ.get(VARIABLE) or read_dotenv(Path.cwd() / ".env").get(VARIABLE) or None


def load(reference: str) -> Windlass:
    """Import the app that `module:attribute` names; the current directory is looked at last.

    Before the standard library and installed packages, any file there could take the place of one.

    Raises:
        ConfigError: there is no such app, or importing it failed.
    """
    check(reference)
    module_name, _, path = reference.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    module = _import(module_name)
    _note_other(module_name.partition(".")[0])
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, Windlass):
        raise ConfigError(_no_app(reference, path, vars(module)))
    found.home = reference  # Where the child processes of a worker find it.
    return found


def check(reference: str) -> None:
    """Reject a target that cannot name an app as wrong usage."""
    module_name, _, path = reference.partition(":")
    if not module_name or not path or "/" in module_name or module_name.endswith(".py"):
        # Imported here, because a worker's process never needs it.
        import typer

        raise typer.BadParameter(
            f"an app must be named as module:attribute, got {reference!r}; write it like "
            "shop.jobs:app"
        )


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except WindlassError as error:
        raise ImportFailed(f"importing {name!r} failed: {error}") from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {name!r} in {Path.cwd()} or in this Python's packages"
            ) from error
        raise _broken(name, error) from error
    except SystemExit as end:
        raise exit_refused(name, end) from end
    except Exception as error:
        raise _broken(name, error) from error


def _note_other(package: str) -> None:
    """Say which module was imported if the current directory has another one of that name."""
    here = Path.cwd()
    files = [here / f"{package}.py", here / package / "__init__.py"]
    home = getattr(sys.modules[package], "__file__", None)
    other = next((file for file in files if file.is_file()), None)
    if (
        other is None
        or home is None
        or any(file.exists() and file.samefile(home) for file in files)
    ):
        return
    # Imported here, because it loads rich.
    from windlass.cli.output import console as show

    show.note(
        f"{package!r} is {home}, not {other}; set PYTHONPATH=. to prefer the current directory"
    )


def _broken(name: str, error: Exception) -> ImportFailed:
    cause = f"{type(error).__qualname__}: {error}"
    return ImportFailed(f"importing {name!r} failed: {cause}")


def _no_app(reference: str, path: str, names: dict[str, Any]) -> str:
    apps = [name for name, value in names.items() if isinstance(value, Windlass)]
    module = reference.partition(":")[0]
    if apps:
        return f"{reference!r} is not a Windlass app; did you mean {module}:{apps[0]}?"
    return (
        f"{reference!r} is not a Windlass app, and {module!r} has none; define one there: {path} "
        "= Windlass()"
    )


async def _visit(app: Windlass, work: Callable[[Windlass], Coroutine[Any, Any, T]]) -> T:
    await require(app.store)
    try:
        await app.store.open()
        return await work(app)
    finally:
        await app.aclose()


def refuse_private(store: Store) -> None:
    """Reject a store whose jobs only the process that made them can see."""
    if not store.capabilities.shared:
        raise ConfigError(
            "memory:// keeps its jobs inside one process, where no other process can see them; "
            "run the worker in the program that enqueues, with app.run_worker(), or use a shared "
            "store like sqlite:///windlass.db"
        )


async def require(store: Store) -> None:
    """Reject a store that does not exist yet: looking at a store must not create it."""
    if (await store.schema()).found is None:
        raise ConfigError(
            f"there is no store at {store.location} yet; create it with `windlass migrate`, or "
            "name another one with --url or --app"
        )
