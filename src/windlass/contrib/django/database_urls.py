"""Owns the URL of the store that follows from a database of Django's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from django.conf import settings
from django.db import connections

_OWN_SETTINGS = {
    "host": "HOST",
    "port": "PORT",
    "user": "USER",
    "password": "PASSWORD",
    "dbname": "NAME",
}
"""Options of libpq for which Django has settings of its own, which win if they are given."""


def url_of_database(alias: str) -> str | None:
    """Return the URL of the store that goes with a database of Django's, if there is one.

    PostgreSQL holds the jobs itself. Beside the SQLite file `shop.sqlite3` they are in
    `shop.windlass.db`: two writers in one file would wait for each other.
    """
    database = settings.DATABASES[alias]
    vendor = connections[alias].vendor
    if vendor == "postgresql":
        return _postgres_url(database)
    return _sqlite_url(str(database["NAME"])) if vendor == "sqlite" else None


def is_database(url: str, alias: str) -> bool:
    """Return whether the store at a URL is in a database of Django's, as far as names show it."""
    if alias not in settings.DATABASES or connections[alias].vendor != "postgresql":
        return False
    place = _place(url)
    return place is not None and place == _place(_postgres_url(settings.DATABASES[alias]))


def _sqlite_url(name: str) -> str:
    if name == ":memory:" or "mode=memory" in name:
        return "memory://"
    file = Path(unquote(urlsplit(name).path) if name.startswith("file:") else name).absolute()
    return "sqlite:///" + quote(str(file.with_name(f"{file.stem}.windlass.db")))


def _place(url: str) -> tuple[str, ...] | None:
    """Return the hosts, ports, database and service of a URL; None if it is not of PostgreSQL."""
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return None
    scheme, _, rest = url.partition("://")
    try:
        parts = conninfo_to_dict(f"{scheme.partition('+')[0]}://{rest}")
    except ProgrammingError:
        return None
    port = str(parts.get("port") or 5432)
    return str(parts.get("host") or ""), port, *(str(parts.get(n)) for n in ("dbname", "service"))


def _postgres_url(database: Mapping[str, Any]) -> str:
    user, password = database.get("USER") or "", database.get("PASSWORD") or ""
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    host, port = str(database.get("HOST") or ""), str(database.get("PORT") or "")
    query = _connection_options(database)
    if host.startswith("/") or "," in host:  # The directory of a socket, or several hosts.
        query, host = {"host": host, **query}, ""
    if ":" in host:
        host = f"[{host}]"
    place = f"{login}@{host}" if login else host
    place += f":{port}" if port and host else ""
    if port and not host:
        query["port"] = port
    rest = f"?{urlencode(query, quote_via=quote, safe='')}" if query else ""
    return f"postgresql://{place}/{quote(str(database.get('NAME') or ''), safe='')}{rest}"


def _connection_options(database: Mapping[str, Any]) -> dict[str, str]:
    """Return the OPTIONS of a database that libpq knows; Django handles the others itself.

    Django assumes a role by `SET ROLE`. The connections of Windlass do so when they start: what
    they make belongs to that role, and a joined enqueue may write to it.
    """
    given = database.get("OPTIONS") or {}
    query = {
        name: str(value)
        for name, value in given.items()
        if name in _libpq_options()
        and value is not None
        and not database.get(_OWN_SETTINGS.get(name, ""))
    }
    if given.get("assume_role"):
        role = str(given["assume_role"]).replace("\\", "\\\\").replace(" ", "\\ ")
        query["options"] = f"{query.get('options', '')} -c role={role}".strip()
    return query


@cache
def _libpq_options() -> frozenset[str]:
    try:
        from psycopg.pq import Conninfo
    except ImportError:
        return frozenset()  # Opening the store says what is to be installed.
    return frozenset(each.keyword.decode() for each in Conninfo.get_defaults())
