"""Owns how tests name an app's connections, and count and end them."""

from __future__ import annotations

import time

import psycopg

NAME = "count-me"
_PATIENCE = 20.0


def named(url: str) -> str:
    """Return a URL whose connections can be told from all others."""
    return f"{url}?application_name={NAME}"


def connections(url: str) -> list[int]:
    """Return the server's processes for the connections of a named URL."""
    with psycopg.connect(url) as db:
        rows = db.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = %s ORDER BY pid",
            [NAME],
        )
        return [row[0] for row in rows]


def left_open(url: str, most: int = 0) -> list[int]:
    """Return the processes of connections beyond so many that are still there after a while.

    The server's process for a connection ends a moment after its client has closed it.
    """
    deadline = time.monotonic() + _PATIENCE
    while len(left := connections(url)) > most and time.monotonic() < deadline:
        time.sleep(0.02)
    return left[most:]
