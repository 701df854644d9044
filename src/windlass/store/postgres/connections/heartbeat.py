"""Owns the connection that renews leases: from a thread, independent of the event loops."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import psycopg

from windlass.core.workers import WorkerPulse
from windlass.store.json_columns import as_json
from windlass.store.postgres.connections.connection import BlockingConnection
from windlass.store.postgres.connections.server_errors import translated


class Heartbeat:
    """One connection, opened when needed and again when it was lost."""

    def __init__(self, conninfo: str, location: str, statement: str) -> None:
        self._conninfo = conninfo
        self._location = location
        self._statement = statement
        self._connection: BlockingConnection | None = None
        self._lock = threading.Lock()

    def beat(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        """Renew a lease; return False if it is lost.

        Raises: StoreUnavailable: the server is unreachable, or does not answer in time.
        """
        with self._lock, translated(self._location):
            deadline = time.monotonic() + timeout.total_seconds()
            if self._connection is not None and not self._connection.closed:
                try:
                    return self._beat(self._connection, worker, pulse, deadline)
                except psycopg.OperationalError:
                    # It may have died long ago. A new one is tried at once: the lease may expire
                    # before the next beat.
                    if time.monotonic() >= deadline:
                        raise
            self._connection = BlockingConnection.open(self._conninfo, deadline)
            return self._beat(self._connection, worker, pulse, deadline)

    def _beat(
        self, connection: BlockingConnection, worker: str, pulse: WorkerPulse, deadline: float
    ) -> bool:
        connection.deadline = deadline
        try:
            row = connection.execute(self._statement, (worker, as_json(pulse))).fetchone()
        except psycopg.Error:
            self._connection = None
            connection.pgconn.finish()
            raise
        return row is not None and bool(row[0])

    def close(self) -> None:
        """Close the connection; the next beat opens a new one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
