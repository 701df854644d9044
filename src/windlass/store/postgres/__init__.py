"""The PostgreSQL store: for any number of hosts, with transactions that users can share."""

from windlass.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
