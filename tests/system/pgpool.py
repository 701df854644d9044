"""Owns a pgpool-II process in front of a primary and its standby."""

from __future__ import annotations

import signal

from tests.support.postgres.server import Server
from tests.system.debian import program
from tests.system.pooler import Pooler

CONFIG = """
backend_clustering_mode = 'streaming_replication'
listen_addresses = '127.0.0.1'
port = {port}
socket_dir = '{directory}'
pcp_listen_addresses = ''
pcp_socket_dir = '{directory}'
pid_file_name = '{directory}/pid'
logdir = '{directory}'
enable_pool_hba = off
pool_passwd = ''
# Each connection of a client has a process of its own.
num_init_children = 64
max_pool = 1
sr_check_user = 'postgres'
sr_check_period = 1
health_check_user = 'postgres'
health_check_period = 1
memory_cache_enabled = off
"""
BACKEND = """
backend_hostname{number} = '127.0.0.1'
backend_port{number} = {port}
backend_weight{number} = 1
backend_flag{number} = 'ALLOW_TO_FAILOVER'
"""
BALANCING_OFF = "load_balance_mode = off"


class Pgpool(Pooler):
    """A pooler that knows a primary and its standbys, and finds out which one is promoted."""

    NAME = "pgpool"
    CONSOLE = "postgres"
    STOP = signal.SIGINT

    def __init__(self, *servers: Server, balancing: str = BALANCING_OFF) -> None:
        super().__init__()
        self._servers = servers
        self._balancing = balancing

    def selects(self) -> dict[int, int]:
        """Return how many SELECTs of clients it has sent to each server, by the server's port."""
        return {int(each["port"]): int(each["select_cnt"]) for each in self.show("pool_nodes")}

    def _files(self, port: int) -> dict[str, str]:
        config = CONFIG.format(port=port, directory=self._directory)
        for number, server in enumerate(self._servers):
            config += BACKEND.format(number=number, port=server.port)
        return {"config": f"{config}{self._balancing}\n", "pcp": "", "hba": ""}

    def _command(self) -> list[str]:
        files = {"-f": "config", "-F": "pcp", "-a": "hba"}
        given = [word for flag, name in files.items() for word in (flag, self._directory / name)]
        return [str(program("pgpool")), "-n", "-D", *map(str, given)]
