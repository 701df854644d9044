"""Every test has a database as if it were the first to have one."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.postgres.cluster import Cluster
from tests.support.postgres.scratch import Prepare, Scratch, Scratches
from tests.support.postgres.server import versions

STORY = (
    "SELECT (SELECT array_agg(name ORDER BY name) FROM queues),"
    " (SELECT array_agg((n, queue)::text ORDER BY n) FROM jobs)"
)
PRISTINE = (["default", "it's\todd"], ["(1,default)"])


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        for statement in statements:
            db.execute(statement.encode())


def story(url: str) -> tuple[object, ...] | None:
    with psycopg.connect(url) as db:
        return db.execute(STORY.encode()).fetchone()


@pytest.fixture
def scratch(postgres_scratches: Scratches, prepare_postgres: Prepare) -> Scratch:
    return postgres_scratches.of(prepare_postgres)


@pytest.mark.parametrize("postgres_server", versions(), indirect=True)
def test_each_version_can_be_asked_for(
    postgres_server: Cluster, postgres_url: str, migrated_url: str, request: pytest.FixtureRequest
) -> None:
    assert postgres_server.major() == request.node.callspec.params["postgres_server"]
    assert story(migrated_url) == PRISTINE


@pytest.mark.parametrize("turn", range(3))
def test_an_empty_database_is_empty(postgres_url: str, turn: int) -> None:
    do(postgres_url, "CREATE TABLE mine ()")


@pytest.mark.parametrize("turn", range(3))
def test_each_test_begins_alike(migrated_url: str, turn: int) -> None:
    assert story(migrated_url) == PRISTINE
    do(
        migrated_url,
        "DELETE FROM jobs",
        "DELETE FROM queues WHERE name = 'default'",
        "INSERT INTO queues VALUES ('other')",
        "INSERT INTO jobs (queue) SELECT 'other' FROM generate_series(1, 100)",
    )


def test_rows_cost_no_new_database(scratch: Scratch) -> None:
    do(scratch.fresh(), "INSERT INTO jobs (queue) SELECT 'default' FROM generate_series(1, 9)")
    before = scratch.replaced
    url = scratch.fresh()
    assert story(url) == PRISTINE
    do(url, "INSERT INTO jobs (queue) VALUES ('default')")
    with psycopg.connect(url) as db:
        assert db.execute("SELECT max(n) FROM jobs").fetchone() == (2,)
    assert scratch.replaced == before


@pytest.mark.parametrize(
    "deed",
    [
        "DROP TABLE jobs",
        "CREATE TABLE more ()",
        "CREATE SCHEMA more",
        "ALTER TABLE jobs ADD more int",
        "ALTER TABLE jobs ALTER queue DROP NOT NULL",
        "ALTER TABLE jobs SET (fillfactor = 50)",
        "CREATE INDEX ON jobs (queue)",
        "CREATE FUNCTION more() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE TYPE more AS ENUM ('a')",
        "ANALYZE queues",
        "TRUNCATE jobs",
        "DO 'BEGIN EXECUTE format(''ALTER DATABASE %I SET jit = off'', current_database()); END'",
        "INSERT INTO jobs (queue) SELECT 'default' FROM generate_series(1, 100000)",
    ],
)
def test_a_test_that_changes_more_than_rows_gets_a_new_database(
    scratch: Scratch, deed: str
) -> None:
    scratch.fresh()
    before = scratch.replaced
    do(scratch.fresh(), deed)
    assert story(scratch.fresh()) == PRISTINE
    assert scratch.replaced == before + 1


def drop(cluster: Cluster, url: str) -> None:
    cluster.drop_database(url.rpartition("/")[2])


def test_a_database_that_a_test_drops_is_made_again(
    scratch: Scratch, postgres_server: Cluster
) -> None:
    drop(postgres_server, scratch.fresh())
    assert story(scratch.fresh()) == PRISTINE


def test_a_connection_that_a_test_leaves_with_locks_is_ended(scratch: Scratch) -> None:
    with psycopg.connect(scratch.fresh()) as db:
        db.execute("LOCK TABLE jobs")
        assert story(scratch.fresh()) == PRISTINE
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT 1")


def test_a_prepared_transaction_that_a_test_leaves_is_ended(scratch: Scratch) -> None:
    do(scratch.fresh(), "BEGIN; DELETE FROM jobs; PREPARE TRANSACTION 'left'")
    assert story(scratch.fresh()) == PRISTINE


def test_temporary_tables_cost_no_new_database(scratch: Scratch) -> None:
    do(scratch.fresh(), "CREATE TEMPORARY TABLE mine ()")
    before = scratch.replaced
    scratch.fresh()
    assert scratch.replaced == before


def test_each_preparation_has_a_database(postgres_server: Cluster) -> None:
    def other(url: str) -> None:
        do(url, "CREATE TABLE other ()")

    def none(url: str) -> None:
        pass

    scratches = Scratches(postgres_server)
    urls = [scratches.of(each).fresh() for each in (other, none, other)]
    assert urls[0] == urls[2] != urls[1]
    scratches.close()
    for url in urls:
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            do(url, "SELECT 1")
