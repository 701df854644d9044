"""Owns the connection by which leases are renewed: by a thread, whatever the event loops do."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import psycopg

from windlass.core.job import Pulse
from windlass.store.columns import as_json
from windlass.store.postgres.wire import Wire, translated


class Heartbeat:
    """One connection, made when it is needed and again when it was lost."""

    def __init__(self, conninfo: str, location: str, statement: str) -> None:
        self._conninfo = conninfo
        self._location = location
        self._statement = statement
        self._wire: Wire | None = None
        self._lock = threading.Lock()

    def beat(self, worker: str, pulse: Pulse, timeout: timedelta) -> bool:
        """Renew a lease; False if it is lost.

        Raises:
            StoreUnavailable: the server is away, or does not answer in time.
        """
        with self._lock, translated(self._location):
            deadline = time.monotonic() + timeout.total_seconds()
            if self._wire is None or self._wire.closed:
                self._wire = Wire.knock(self._conninfo, deadline)
            self._wire.deadline = deadline
            try:
                row = self._wire.execute(self._statement, (worker, as_json(pulse))).fetchone()
            except psycopg.Error:
                wire, self._wire = self._wire, None
                wire.pgconn.finish()
                raise
            return row is not None and bool(row[0])

    def close(self) -> None:
        """Let go of the connection; the next beat makes a new one."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
