"""Owns which errors become one line for whoever called `windlass`, and what it says."""

from __future__ import annotations

from windlass.core.errors import WindlassError


def reason(error: Exception) -> str | None:
    """Return what the line says; None if the error is not one to be told in a line."""
    match error:
        case BrokenPipeError():
            return None
        case OSError():
            return f"{error.strerror or error}"
        case WindlassError():
            return str(error)
    return None
