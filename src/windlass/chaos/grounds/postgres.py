"""Owns chaos on PostgreSQL: a server of its own, or a schema in a user's database."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
from psycopg import sql

from windlass.chaos.grounds.disk import SmallDisk
from windlass.chaos.grounds.ground import Ground, is_plain_host, refuse_full, through
from windlass.chaos.grounds.postgres_server import PostgresServer
from windlass.chaos.plan import NETWORK_FAULTS, FaultKind
from windlass.chaos.terms import EFFECTS, SCHEMA

_NAME = "windlass-chaos"
"""The application name of the sessions that may be terminated."""
_SCHEMA = sql.Identifier(SCHEMA)
_TABLE = sql.Identifier(SCHEMA, EFFECTS)
_EXISTS = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
_TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = %s AND datname = current_database() AND pid <> pg_backend_pid()
"""
_CLOCK = """
CREATE OR REPLACE FUNCTION {}.clock() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS {}
"""
_CLOCK_BODY = "SELECT statement_timestamp() + interval '{:.3f} s'"
"""The only clock that decides about leases and due times, in a schema of chaos's own."""


class PostgresGround(Ground):
    """A database with a schema for chaos alone."""

    name = "postgres"
    has_transactions = True
    settings = {"schema": SCHEMA}  # noqa: RUF012

    def __init__(self, directory: Path, url: str = "", *, jobs: int = 0) -> None:
        super().__init__()
        self.url = url
        self._directory = directory
        self._place: Path | None = None
        self._jobs = jobs
        self._disk = SmallDisk(directory / "disk", jobs)
        self._server: PostgresServer | None = None
        self._owns_schema = False
        self._ahead = 0.0
        self._without("chaos starts no standby of PostgreSQL", FaultKind.FAIL_OVER)

    @property
    def workers_url(self) -> str:
        base = self.url if self.proxy is None else through(self.url, self.proxy.port)
        mark = "&" if urlsplit(base).query else "?"
        return f"{base}{mark}application_name={_NAME}"

    async def prepare(self) -> None:
        if self.url:
            self._without("it is your server", FaultKind.RESTART_SERVER, FaultKind.FILL_DISK)
            mode = parse_qs(urlsplit(self.url).query).get("sslmode", [""])[0]
            if not is_plain_host(self.url) or mode == "verify-full":
                reason = "a proxy needs a URL with one host, whose name TLS does not verify"
                self._without(reason, *NETWORK_FAULTS)
        else:
            await self._start_server()
        await asyncio.to_thread(self._check_empty)
        if FaultKind.STALL_NETWORK not in self.impossible:
            await self._start_proxy(5432)

    async def _start_server(self) -> None:
        self._place = place = _place()
        self._disk = SmallDisk(place / "disk", self._jobs)
        if not self._disk.mount():
            self._without("this user may not mount a tmpfs", FaultKind.FILL_DISK)
        log = self._directory / "postgres.log"
        self._server = server = PostgresServer(place, self._disk.directory / "data", log)
        await asyncio.to_thread(server.initialise)
        await self._serve(server)
        self.url = server.url

    async def _serve(self, server: PostgresServer) -> None:
        server.spawn()
        while not await asyncio.to_thread(server.wait):
            server.spawn()

    def _check_empty(self) -> None:
        if self._query(sql.SQL(_EXISTS), [SCHEMA]):
            raise refuse_full(
                f"the schema {SCHEMA} exists",
                f"if an earlier run left it there: DROP SCHEMA {SCHEMA} CASCADE",
            )
        self._owns_schema = True

    async def close(self) -> None:
        if self.proxy is not None:
            await self.proxy.close()
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)
        elif self._owns_schema:
            drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(_SCHEMA)
            await asyncio.to_thread(self._query, drop)
        self._disk.unmount()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)

    async def create_effects(self) -> None:
        create = sql.SQL("CREATE TABLE {} (job text NOT NULL, attempt integer NOT NULL)")
        await asyncio.to_thread(self._query, create.format(_TABLE))

    async def effects(self) -> dict[str, list[int]] | None:
        select = sql.SQL("SELECT job, attempt FROM {}").format(_TABLE)
        found: dict[str, list[int]] = {}
        for job, attempt in await asyncio.to_thread(self._query, select):
            found.setdefault(job, []).append(attempt)
        return found

    async def terminate_backends(self) -> None:
        await asyncio.to_thread(self._query, sql.SQL(_TERMINATE), [_NAME])

    async def restart(self, pause: float) -> None:
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)
            await asyncio.sleep(pause)
            await self._serve(self._server)

    async def step_clock(self, seconds: float) -> None:
        self._ahead += seconds
        clock = sql.SQL(_CLOCK).format(_SCHEMA, sql.Literal(_CLOCK_BODY.format(self._ahead)))
        await asyncio.to_thread(self._query, clock)

    async def fill_disk(self, seconds: float) -> None:
        try:
            await asyncio.to_thread(self._disk.fill)
            await asyncio.sleep(seconds)
        finally:
            self._disk.empty()
        # A PostgreSQL that cannot write its log ends; as a service it would be started again.
        if self._server is not None and not self._server.is_running:
            await self._serve(self._server)

    def _query(self, query: sql.SQL | sql.Composed, values: Sequence[object] = ()) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query, values or None)
            return cursor.fetchall() if cursor.description else []


def _place() -> Path:
    """Make a directory for the server.

    Not in that of the ledger, which no other user may enter: as root, PostgreSQL runs as another.
    """
    place = Path(tempfile.mkdtemp(prefix="windlass-chaos-pg-")).resolve()
    place.chmod(0o755)
    return place
