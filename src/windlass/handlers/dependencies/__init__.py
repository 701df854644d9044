"""What a run of a handler has for itself, like a session: opened before it, closed after it."""

from windlass.handlers.dependencies.dependencies import Dependencies

__all__ = ["Dependencies"]
