"""Owns how today's code is the next release: it has one migration more, and other functions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from windlass.store.postgres import migrate as schema
from windlass.store.sql_files import Migration

NEXT = Migration(
    schema.WANTED + 1,
    "next",
    """\
-- What a later release may want: a column in every table of jobs, and an index.
-- Served by every release that knows schema 1 or newer: oldest 1.
ALTER TABLE jobs ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE dead_jobs ADD COLUMN note text NOT NULL DEFAULT '';
ALTER TABLE finished_jobs ADD COLUMN note text NOT NULL DEFAULT '';
CREATE INDEX jobs_notes ON jobs (note) WHERE note <> '';
""",
)
NEXT_FUNCTIONS = {
    **schema.FUNCTIONS,
    "settle": schema.FUNCTIONS["settle"].replace("BEGIN\n", "BEGIN\n    PERFORM noted();\n", 1),
    "noted": """\
CREATE OR REPLACE FUNCTION noted() RETURNS integer LANGUAGE sql AS 'SELECT 1';
COMMENT ON FUNCTION noted() IS 'A function that settle calls in the next release.';
""",
}
_for_life = ExitStack()


@contextmanager
def next_release() -> Iterator[None]:
    """Be the next release."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, NEXT])
        patch.setattr(schema, "WANTED", NEXT.number)
        patch.setattr(schema, "FUNCTIONS", NEXT_FUNCTIONS)
        yield


def become_next() -> None:
    """Be the next release for as long as this process lives."""
    _for_life.enter_context(next_release())


def script_of(step: Migration) -> str:
    """Return a step as the script that `windlass migrate --dry-run` prints."""
    return schema.script(step, schema.Names("windlass"))


def next_scripts() -> str:
    """Return all that the next release prints for a database of this one."""
    with next_release():
        return script_of(NEXT) + script_of(schema.functions_step())
