"""Owns the streams of jobs in PostgreSQL: what goes to the server, and how its rows are read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.core.jobs.streams import ChunkGroup, StoredGroup, StreamPage
from windlass.store.json_columns import as_json
from windlass.store.postgres.connections.connection import Row


def document(groups: Sequence[ChunkGroup]) -> str:
    """Return the one value of `stream_append`."""
    return as_json(
        [
            {
                "id": group.id,
                "token": group.token,
                "attempt": group.attempt,
                "offset": group.offset,
                "resumed": group.resumed,
                "steps": group.steps,
                "number": len(group.chunks),
                "size": group.size,
                "chunks": msgspec.Raw(group.data),
            }
            for group in groups
        ]
    )


def page(rows: Sequence[Row]) -> StreamPage:
    """Return what `stream_read` has found: at least one row, which says whether the job is live."""
    groups = [StoredGroup.of(*row[1:]) for row in rows if row[1] is not None]
    return StreamPage(groups, bool(rows[0][0]))
