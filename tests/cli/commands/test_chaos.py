"""`windlass chaos`: what it refuses before it throws anything, and a short run to its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.cli.conftest import Shell
from tests.support.postgres.cluster import Cluster
from tests.support.redis_server import RedisServer
from tests.support.worker_processes import until
from tests.torture.programs.families import alive, descendants


def test_a_store_of_a_user_is_touched_only_after_a_confirmation(
    shell: Shell, tmp_path: Path
) -> None:
    said = shell("chaos", "--url", f"sqlite:///{tmp_path / 'mine.db'}")

    said.refused("confirm with --yes", code=2)
    assert not (tmp_path / "mine.db").exists()


def test_a_password_in_the_url_is_not_shown(shell: Shell) -> None:
    said = shell("chaos", "--url", "postgresql://me:hunter2@127.0.0.1:9/none")

    said.refused("me:***@127.0.0.1", code=2)
    assert "hunter2" not in said.out + said.err


def test_a_file_that_exists_is_refused(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    path.write_bytes(b"data")
    said = shell("chaos", "--url", f"sqlite:///{path}", "--yes")

    said.refused("must be empty", "exists; name a file that does not exist yet")
    assert path.read_bytes() == b"data"


def test_a_schema_that_exists_is_refused_and_kept(shell: Shell, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("CREATE SCHEMA windlass_chaos")
        db.execute("CREATE TABLE windlass_chaos.mine ()")
    said = shell("chaos", "--url", postgres_url, "--yes")

    said.refused("must be empty", "DROP SCHEMA windlass_chaos CASCADE")
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("SELECT FROM windlass_chaos.mine")


def test_a_prefix_that_has_keys_is_refused_and_kept(
    shell: Shell, redis_server: RedisServer
) -> None:
    redis_server.call("SET", "{windlass-chaos}:mine", "data")
    try:
        said = shell("chaos", "--url", redis_server.url, "--yes")

        said.refused("must be empty", "{windlass-chaos}:")
        assert redis_server.call("GET", "{windlass-chaos}:mine") == b"data"
    finally:
        redis_server.forget("windlass-chaos")


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        (("--store", "oracle"), ("sqlite, postgres, redis",)),
        (("--time", "0s"), ("--time", "1s")),
        (("--lease", "10ms"), ("--lease", "1s")),
        (("--only", "earthquake"), ("earthquake",)),
    ],
)
def test_wrong_options_are_wrong_usage(
    shell: Shell, args: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    shell("chaos", *args).refused(*parts, code=2)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("memory://", "chaos needs a store that several processes share"),
        ("redis+cluster://a,b", "got redis+cluster://"),
        ("rediss://localhost", "rediss://"),
    ],
)
def test_urls_of_stores_that_chaos_cannot_use_are_refused(
    shell: Shell, url: str, part: str
) -> None:
    shell("chaos", "--url", url, "--yes").refused(part)


def test_a_fault_that_is_not_possible_is_refused(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'new.db'}"
    said = shell("chaos", "--url", url, "--yes", "--only", "stall-network")

    said.refused("--only stall-network is not possible here: SQLite has no network")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_short_run_writes_its_report_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The variable of the user's own store is ignored."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = "chaos --time 4s --jobs 60 --faults 2 --seed 3 --json r.json --html r.html"
    done = subprocess.run(
        [sys.executable, "-m", "windlass", *command.split()],
        cwd=tmp_path,
        env={"TMPDIR": str(temporary), "WINDLASS_URL": "sqlite:///production.db"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept: all" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    thrown = [strike for strike in report["strikes"] if strike["number"]]
    assert (report["ok"], report["seed"], len(thrown)) == (True, 3, 2)
    assert report["accepted"] > 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert list(temporary.iterdir()) == []
    assert not (tmp_path / "production.db").exists()


def run_on(url: str, directory: Path, *faults: str) -> dict[str, Any]:
    """Run chaos on a store of a user, to its end, and return the report."""
    command = f"chaos --yes --time 3s --jobs 60 --seed 3 --json r.json --faults {len(faults)}"
    only = [part for fault in faults for part in ("--only", fault)]
    done = subprocess.run(
        [sys.executable, "-m", "windlass", *command.split(), *only, "--url", url],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads((directory / "r.json").read_text())
    assert {each["fault"] for each in report["strikes"] if each["number"]} == set(faults)
    assert report["impossible"]["restart-server"] == "it is your server"
    return report


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_in_a_database_of_a_user_leaves_nothing_in_it(
    postgres_server: Cluster, postgres_url: str, tmp_path: Path
) -> None:
    """As an ordinary role, which may make a schema and end its own sessions."""
    database = psycopg.conninfo.conninfo_to_dict(postgres_url)["dbname"]
    role = f"chaos_{database}"
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        try:
            grant = sql.SQL("GRANT CREATE ON DATABASE {} TO {}")
            db.execute(grant.format(sql.Identifier(str(database)), sql.Identifier(role)))
            url = postgres_server.url(str(database), role)
            report = run_on(url, tmp_path, "terminate-backends", "step-clock")

            assert report["store"] == "postgres"
            assert not db.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname = 'windlass_chaos'"
            ).fetchall()
        finally:
            db.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
            db.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_on_a_redis_of_a_user_leaves_its_other_keys_alone(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    redis_server.call("SET", "mine", "data")
    report = run_on(f"{redis_server.url}/3", tmp_path, "cut-network", "kill-worker")

    assert report["store"] == "redis"
    with redis_server.client() as call:
        assert (call("SELECT", 3), call("DBSIZE")) == (b"OK", 0)
    assert redis_server.call("GET", "mine") == b"data"


@contextmanager
def storm(directory: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Give a long run whose storm has begun, and all of its processes; nothing is left of it."""
    temporary = directory / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", "chaos", "--time", "300s", "--seed", "3"],
        cwd=directory,
        env={"TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("storm"):
            break
    below = descendants(process.pid)
    assert len(below) > 5
    yield process, below
    until(lambda: not any(map(alive, below)), "the end of all processes")
    assert list(temporary.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_run_that_is_terminated_ends_all_of_its_processes(tmp_path: Path) -> None:
    with storm(tmp_path) as (process, _):
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)

        assert process.returncode == 130
        assert "laws" not in said


@pytest.mark.long
@pytest.mark.timeout(400)
def test_ctrl_c_ends_the_storm_and_reports_what_was_seen_until_then(tmp_path: Path) -> None:
    with storm(tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()

        assert process.returncode == 130, said
        assert "Ctrl-C ended the storm before its time" in said
        assert "kept: all" in said
