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
            if self._wire is not None and not self._wire.closed:
                try:
                    return self._beat(self._wire, worker, pulse, deadline)
                except psycopg.OperationalError:
                    # It may have died long ago. Whoever has to wait for the next beat to find a new
                    # one may find that dead, too, and so lose a lease that nobody wanted to take.
                    if time.monotonic() >= deadline:
                        raise
            self._wire = Wire.knock(self._conninfo, deadline)
            return self._beat(self._wire, worker, pulse, deadline)

    def _beat(self, wire: Wire, worker: str, pulse: Pulse, deadline: float) -> bool:
        wire.deadline = deadline
        try:
            row = wire.execute(self._statement, (worker, as_json(pulse))).fetchone()
        except psycopg.Error:
            self._wire = None
            wire.pgconn.finish()
            raise
        return row is not None and bool(row[0])

    def close(self) -> None:
        """Let go of the connection; the next beat makes a new one."""
        with self._lock:
            wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
