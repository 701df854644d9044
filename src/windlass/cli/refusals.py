"""Owns which errors become one line for the caller of `windlass`, and its text."""

from __future__ import annotations

from windlass.core.errors import ImportFailed, WindlassError


def reason(error: Exception) -> str | None:
    """Return the line; None if the error needs a traceback."""
    match error:
        case BrokenPipeError():
            return None
        case OSError():
            return f"{error.strerror or error}"
        case WindlassError():
            return str(error)
    return None


def refuse(error: Exception, why: str) -> None:
    """Print why a command failed; if the app's own code did, also where."""
    # Imported here: rich and what looks into tracebacks are needed only by those that fail.
    from windlass.cli.output import console as show
    from windlass.core.failures.describe import where

    show.error(why)
    if isinstance(error, ImportFailed) and (place := where(error.__cause__ or error)):
        show.place(place)
