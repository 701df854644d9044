"""Owns roles for tests: what they are granted, and that nothing is left of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql

MAY_ENQUEUE: tuple[LiteralString, ...] = (
    "GRANT USAGE ON SCHEMA windlass TO {role}",
    "GRANT SELECT ON windlass.migrations TO {role}",
    "GRANT EXECUTE ON FUNCTION windlass.enqueue, windlass.enqueue_many, windlass.add TO {role}",
    "GRANT EXECUTE ON FUNCTION windlass.send_event, windlass.send_news TO {role}",
)
"""What a producer needs, and no more."""
MAY_WORK: tuple[LiteralString, ...] = (
    "GRANT USAGE ON SCHEMA windlass TO {role}",
    "GRANT SELECT ON ALL TABLES IN SCHEMA windlass TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON windlass.jobs, windlass.dead_jobs TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON windlass.finished_jobs, windlass.unique_keys TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON windlass.done_keys TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON windlass.workers, windlass.sleepers TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON windlass.records, windlass.news TO {role}",
    "GRANT INSERT, UPDATE, DELETE ON windlass.streams, windlass.stream_chunks TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA windlass TO {role}",
)
"""What a worker needs: it writes rows, and makes, changes and drops nothing else."""


@contextmanager
def role(url: str, grants: tuple[LiteralString, ...] = ()) -> Iterator[str]:
    """Make a role with some rights in a database, and give the URL by which one is that role.

    Whoever connects is the superuser, and takes the role at once: so no login has to be allowed.
    """
    name = f"windlass_{uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as db:
        _execute(db, "CREATE ROLE {role}", name)
        try:
            for grant in grants:
                _execute(db, grant, name)
            yield f"{url}?options=-crole%3D{name}"
        finally:
            _execute(db, "DROP OWNED BY {role}", name)
            _execute(db, "DROP ROLE {role}", name)


def _execute(db: psycopg.Connection[Any], statement: LiteralString, name: str) -> None:
    db.execute(sql.SQL(statement).format(role=sql.Identifier(name)))
