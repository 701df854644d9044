"""Owns a PgBouncer process in front of a PostgreSQL server, in transaction mode."""

from __future__ import annotations

import signal

from tests.support.postgres.server import Server
from tests.system.debian import program
from tests.system.pooler import Pooler

CONFIG = """
[databases]
* = host=127.0.0.1 port={server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users
admin_users = postgres
pool_mode = transaction
default_pool_size = 10
max_client_conn = 500
server_login_retry = {login_retry}
# Else the pooler's log would be mostly about who comes and goes.
log_connections = 0
log_disconnections = 0
"""
DEFAULT_LOGIN_RETRY = 15
"""Seconds that PgBouncer waits after a failed login unless it is configured."""


class PgBouncer(Pooler):
    """A pooler that gives a server's connections away for one transaction each."""

    NAME = "PgBouncer"
    CONSOLE = "pgbouncer"
    STOP = signal.SIGTERM

    def __init__(self, server: Server, *, login_retry: int = 1) -> None:
        super().__init__()
        self._server = server
        self._login_retry = login_retry

    def lead_to(self, server: Server) -> None:
        """Lead to another server from now on, as an operator does after a failover."""
        self._server = server
        self._configure(self.port)
        with self._console(self.port) as console:
            console.execute("RELOAD")

    def _files(self, port: int) -> dict[str, str]:
        config = CONFIG.format(
            server=self._server.port,
            port=port,
            directory=self._directory,
            login_retry=self._login_retry,
        )
        return {"config": config, "users": '"postgres" ""\n'}

    def _command(self) -> list[str]:
        return [str(program("pgbouncer")), str(self._directory / "config")]
