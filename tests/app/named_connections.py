"""Owns how tests name an app's connections, and count and end them."""

from __future__ import annotations

import psycopg

NAME = "count-me"


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
