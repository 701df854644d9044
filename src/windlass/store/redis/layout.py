"""Owns the layout number of the keys, and which releases can work with it."""

from __future__ import annotations

from windlass.core.errors import SchemaMismatch
from windlass.store.protocol import Schema
from windlass.store.redis.scripting.calls import Names, Talk
from windlass.store.sql_files import Migration

LAYOUT = 1
_KEY = "schema"
_FIRST = Migration(
    LAYOUT,
    "layout",
    f"SET {{prefix}}:{_KEY} {LAYOUT}\n-- All other keys are made by their first use.\n",
)


def look(names: Names) -> Talk[Schema]:
    """Return the layout in the store."""
    (value,) = yield [("GET", names.key(_KEY))]
    number, _, oldest = (value or b"").partition(b" ")
    found = int(number) if number.isdigit() else None
    return Schema(found=found, wanted=LAYOUT, oldest=int(oldest or 0))


def make(names: Names, location: str) -> Talk[list[str]]:
    """Make the layout unless there is one; return the names of the steps taken.

    Raises:
        SchemaMismatch: it was made by a release that this one does not understand.
    """
    schema = yield from look(names)
    if schema.found is None:
        yield [("SET", names.key(_KEY), LAYOUT)]
        return [f"{_FIRST.number:04}_{_FIRST.name}"]
    if not schema.serves:
        raise SchemaMismatch(
            f"the keys in {location} have layout {schema.found}, and this release of Windlass "
            f"needs {LAYOUT}; upgrade windlass, or use another prefix"
        )
    return []


def steps(names: Names) -> Talk[list[Migration]]:
    """Return the steps that `make` would take."""
    schema = yield from look(names)
    prefix = names.namespace.decode().removesuffix(":")
    return [] if schema.found else [_FIRST._replace(sql=_FIRST.sql.format(prefix=prefix))]
