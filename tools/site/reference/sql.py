"""Owns the page of the PostgreSQL schema: functions for programs, views, tables, and the rest."""

from __future__ import annotations

import re
from pathlib import Path

import windlass
from tools.site.reference.chapter import Chapter, Page
from tools.site.reference.markdown import code, marked, table

_PATH = "reference/sql.md"
_FOR_PROGRAMS = ("enqueue", "enqueue_many", "send_event", "clock")
_COMMENT = re.compile(
    r"COMMENT ON (FUNCTION|VIEW|TABLE|COLUMN)\s+([\w.]+)\s*(\([^)]*\))?\s+IS\s+'((?:[^']|'')*)'"
)
_DEFINED = re.compile(
    r"CREATE (?:OR REPLACE )?(?:UNLOGGED )?(FUNCTION|VIEW|TABLE) (?:IF NOT EXISTS )?(\w*[a-z])\b"
)


def _sources() -> str:
    root = Path(windlass.__file__).parent / "store" / "postgres" / "sql"
    found = [*(root / "migrations").iterdir(), *(root / "functions").iterdir()]
    return "\n".join(each.read_text("utf-8") for each in sorted(found, key=lambda each: each.name))


def _names() -> list[str]:
    return sorted({f"{what.lower()} {name}" for what, name in _DEFINED.findall(_sources())})


def _anchor(name: str) -> str:
    return "sql-" + name.replace(" ", "-").replace("_", "-")


def _pages() -> list[Page]:
    said = {
        (what, name): (" ".join(arguments.split()), text.replace("''", "'"))
        for what, name, arguments, text in _COMMENT.findall(_sources())
    }
    own = [(name, *said["FUNCTION", name]) for name in _FOR_PROGRAMS if ("FUNCTION", name) in said]
    rest = [
        (name, *text)
        for (what, name), text in sorted(said.items())
        if what == "FUNCTION" and name not in _FOR_PROGRAMS
    ]
    text = (
        "# SQL functions, views and tables\n\n"
        "The schema in PostgreSQL, `windlass` unless [another is set](settings.md#setting-schema). "
        "Call the functions for programs, and read views and tables as you like; change jobs only "
        "by functions and commands. Rights: [Roles](../postgresql.md#roles).\n\n"
        "## Functions for programs\n\n"
        f"{_functions(own)}\n"
        "The fields of the JSON argument: [From psql and other languages]"
        "(../postgresql.md#from-psql-and-other-languages).\n\n"
        "## Views\n\n"
        f"{_relations('VIEW', said)}\n"
        "## Tables\n\n"
        "Their columns may change with a release; prefer the view `job_queue`.\n\n"
        f"{_relations('TABLE', said)}\n"
        "## Functions of workers\n\n"
        "Windlass calls them itself; they may change with a release.\n\n"
        f"{_functions(rest)}"
    )
    return [Page(_PATH, text)]


def _functions(found: list[tuple[str, str, str]]) -> str:
    rows = [
        (marked(_anchor(f"function {name}"), code(f"{name}{arguments}")), text)
        for name, arguments, text in found
    ]
    return table(["function", "what it does"], rows)


def _relations(wanted: str, said: dict[tuple[str, str], tuple[str, str]]) -> str:
    parts = []
    for (what, name), (_, text) in said.items():
        if what == wanted:
            anchor = _anchor(f"{what.lower()} {name}")
            parts.append(f"### `{name}` {{ #{anchor} }}\n\n{text}\n")
            columns = [
                (code(column.partition(".")[2]), doc)
                for (kind, column), (_, doc) in said.items()
                if kind == "COLUMN" and column.startswith(f"{name}.")
            ]
            if columns:
                parts.append(table(["column", "what it is"], columns))
    return "\n".join(parts)


CHAPTER = Chapter(
    subject="SQL function, view or table",
    title="SQL functions, views and tables",
    summary="the PostgreSQL schema, for psql and other languages",
    path=_PATH,
    names=_names,
    anchor=_anchor,
    pages=_pages,
    remedy="add a COMMENT ON to its definition",
)
