"""The embedded store: one file, no service, durable, any number of processes on one machine."""

from windlass.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
