"""Windlass behind pgpool-II: no statement may go to a standby, and docs/failover.md says how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres_workers import PostgresYard
from tests.system.pgpool import BALANCING_OFF, Pgpool
from tests.system.replication import Copy, Primary, either, pair
from windlass import Kind, State, Windlass

BALANCED = "load_balance_mode = on\nbackend_weight0 = 0\nbackend_weight1 = 1"
"""Whatever pgpool takes for a read goes to the standby."""
REDIRECTED = f"{BALANCED}\ndatabase_redirect_preference_list = 'windlass_.*:primary'"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Primary, Copy, str]]:
    """Give a primary, its standby, and the path of a database."""
    with pair("asynchronous") as given:
        yield given


@contextmanager
def worked(
    servers: tuple[Primary, Copy, str], directory: Path, balancing: str
) -> Iterator[tuple[Pgpool, int]]:
    """Enqueue, run and look at jobs by way of pgpool; give it, and the port of the standby."""
    primary, standby, database = servers
    direct = either(database, primary.port, standby.port)
    with (
        Pgpool(primary, standby, balancing=balancing) as pool,
        closing(
            PostgresYard(
                directory, direct, workers_url=pool.through(primary.url(database.strip("/")))
            )
        ) as yard,
        closing(Windlass(yard.workers_url, listen_url="off")) as app,
    ):
        yard.worker(lease="20s", environ={"WINDLASS_LISTEN_URL": direct})
        producer = app.producer(Kind("quick", dict[str, Any]))
        for _ in range(20):
            yard.settled(producer.enqueue({}).id, State.COMPLETED)
        assert len(app.jobs.find(limit=5).jobs) == 5
        yield pool, standby.port


@pytest.mark.parametrize("balancing", [BALANCING_OFF, REDIRECTED], ids=["off", "redirected"])
def test_the_settings_of_the_page_send_nothing_to_a_standby(
    balancing: str, servers: tuple[Primary, Copy, str], tmp_path: Path
) -> None:
    with worked(servers, tmp_path, balancing) as (pool, standby):
        assert pool.selects()[standby] == 0


def test_pgpool_by_itself_reads_from_a_standby(
    servers: tuple[Primary, Copy, str], tmp_path: Path
) -> None:
    """Otherwise the test above could not fail; jobs run even so, but what is read may be old."""
    with worked(servers, tmp_path, BALANCED) as (pool, standby):
        assert pool.selects()[standby] > 0
