"""Owns nothing of its own: the PostgreSQL store, by one name."""

from windlass.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
