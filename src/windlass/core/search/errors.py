"""Owns the error of a search that cannot be read."""

from __future__ import annotations

from windlass.core.errors import WindlassError


class SearchError(WindlassError, ValueError):
    """A search that cannot be read; `position` is the place of the mistake, counted from 0.

    Remedy:
        Correct the search there; the message says what is allowed.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message, position)
        self.message = message
        self.position = position

    def __str__(self) -> str:
        return f"{self.message} (at character {self.position + 1} of the search)"
