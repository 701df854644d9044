"""Owns the table of orders that handlers write in their transactions."""

from __future__ import annotations

import psycopg

from tests.support.app_on_store import Bed
from tests.support.clocked_stores import migrate


def migrate_with_orders(url: str) -> None:
    """Make a schema, and beside it a table of the user's."""
    migrate(url)
    with psycopg.connect(url) as db:
        db.execute("CREATE TABLE orders (id integer PRIMARY KEY)")


def orders(bed: Bed) -> list[int]:
    with psycopg.connect(bed.url) as db:
        return [row[0] for row in db.execute("SELECT id FROM orders ORDER BY id")]
