"""A server of our own starts, obeys, recovers, and does not outlive those who need it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest

from tests.support.postgres import server as module
from tests.support.postgres.cluster import Cluster
from tests.support.postgres.guardian import is_alive
from tests.support.postgres.server import FAST, Server, ServerFailed, versions
from tests.support.postgres.shared import joined
from tests.support.postgres.wheel import WHEEL, installations

# They start a server each. If what all the others stand on were broken, these would be, too.
pytestmark = [pytest.mark.long, pytest.mark.again]
ROOT = Path(__file__).parents[3]
PATH = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
IS_ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="only root can become somebody else")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Give a server to those who leave it as it is."""
    with Server(settings=FAST) as server:
        yield server


def until(look: Callable[[], object], what: str, within: float = 30.0) -> None:
    give_up = time.monotonic() + within
    while not look():
        assert time.monotonic() < give_up, f"not within {within} s: {what}"
        time.sleep(0.01)


def ask(url: str, words: str) -> object:
    with psycopg.connect(url) as db:
        row = db.execute(words.encode()).fetchone()
        return row and row[0]


def do(url: str, *statements: str) -> None:
    with psycopg.connect(url) as db:
        for statement in statements:
            db.execute(statement.encode())


def test_the_wheel_has_the_versions_that_we_support() -> None:
    assert versions() == (16, 18)


def test_an_unknown_version_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ServerFailed, match=r"no PostgreSQL 9 .*16, 18"), Server(version=9):
        pass


@pytest.mark.parametrize("version", versions())
def test_each_version_starts_and_leaves_nothing_behind(version: int) -> None:
    with Server(version=version) as server:
        assert server.major() == version
        assert ask(server.url(), "SHOW fsync") == "on"
        assert ask(server.url(), "SHOW full_page_writes") == "on"
        assert "ready to accept connections" in server.log
    assert not server.directory.exists()
    assert not psutil.pid_exists(server.pid)


def test_settings_can_be_given_and_altered() -> None:
    with Server(settings=FAST) as server:
        assert ask(server.url(), "SHOW fsync") == "off"
        assert ask(server.url(), "SHOW max_prepared_transactions") == "10"
        with server.connection() as db:
            db.execute("ALTER SYSTEM SET fsync = on")
        server.restart("fast")
        assert ask(server.url(), "SHOW fsync") == "on"


def test_the_server_answers_at_its_socket_too(server: Server) -> None:
    assert ask(server.socket_url(), "SELECT inet_client_addr()") is None
    assert ask(server.url(), "SELECT host(inet_client_addr())") == "127.0.0.1"


def test_databases_and_users_have_urls(server: Server) -> None:
    url = server.create_database("or der")
    do(url, "CREATE TABLE kept ()", "CREATE ROLE clerk LOGIN")
    copy = server.create_database("copy", template="or der")
    assert ask(copy, "SELECT count(*) FROM kept") == 0
    assert ask(server.url("copy", user="clerk"), "SELECT current_user") == "clerk"
    server.drop_database("copy")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        ask(copy, "SELECT 1")


def test_a_database_in_use_is_dropped(server: Server) -> None:
    with psycopg.connect(server.create_database("busy")) as db:
        server.drop_database("busy")
        with pytest.raises(psycopg.OperationalError):
            db.execute("SELECT 1")


@pytest.mark.parametrize("crash", [Server.restart, lambda it: (it.kill(), it.start())])
def test_committed_jobs_survive_a_crash(crash: Callable[[Server], object]) -> None:
    with Server() as server:
        before = server.url()
        do(before, "CREATE TABLE kept AS SELECT 42 AS it")
        with psycopg.connect(before) as db:
            db.execute("INSERT INTO kept VALUES (13)")
            crash(server)
            with pytest.raises(psycopg.OperationalError):
                db.execute("SELECT 1")
        assert server.url() == before
        assert ask(before, "SELECT sum(it) FROM kept") == 42
        assert "was not properly shut down" in server.log


def test_a_killed_server_has_no_process_left() -> None:
    with Server(settings=FAST) as server:
        children = psutil.Process(server.pid).children(recursive=True)
        assert children
        server.kill()
        assert not server.is_running
        assert not [child for child in children if is_alive(child)]


def test_a_directory_that_is_given_stays_and_is_used_again() -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        directory = Path(parent) / "server"
        with Server(directory=directory) as server:
            do(server.url(), "CREATE TABLE kept AS SELECT 42 AS it")
        with Server(directory=directory) as server:
            assert ask(server.url(), "SELECT it FROM kept") == 42


def test_a_server_that_cannot_start_says_why() -> None:
    server = Server(settings={"shared_buffers": "1PB"})
    with pytest.raises(ServerFailed, match="shared_buffers"), server:
        pass
    assert not server.directory.exists()


def test_a_port_that_is_taken_is_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    free = next(port for port in module.PORTS if module.is_free(port))
    monkeypatch.setattr(module, "sample", lambda *_: [server.port, free])
    # As if somebody had taken it just after the look.
    monkeypatch.setattr(module, "is_free", lambda _: True)
    with Server(settings=FAST) as second:
        assert second.port == free


# -- whose it is -----------------------------------------------------------------------------------


@as_root
def test_as_root_the_server_is_somebody_else(server: Server) -> None:
    assert psutil.Process(server.pid).uids().effective != 0


@as_root
def test_as_root_binaries_out_of_reach_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = installations()[versions()[-1]]
    wheel = tmp_path / "site-packages"
    libraries = home.parents[1] / f"{WHEEL}.libs"
    shutil.copytree(home, wheel / home.parent.name / home.name)
    shutil.copytree(libraries, wheel / libraries.name)
    wheel.chmod(0o700)
    hidden = {versions()[-1]: wheel / home.parent.name / home.name}
    monkeypatch.setattr(module, "installations", lambda: hidden)
    with Server(settings=FAST) as server:
        assert ask(server.url(), "SELECT 1") == 1
        running = Path(psutil.Process(server.pid).exe())
        assert running.is_relative_to(server.directory)


@as_root
def test_without_root_the_server_is_ours() -> None:
    nobody = pwd.getpwnam("nobody")
    script = (
        "import os, psutil\n"
        "from tests.support.postgres.server import Server\n"
        "with Server() as server:\n"
        "    assert server.major()\n"
        "    assert psutil.Process(server.pid).uids().effective == os.geteuid() != 0\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env={**os.environ, "PYTHONPATH": PATH, "PYTHONDONTWRITEBYTECODE": "1"},
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
        )
    except PermissionError:
        pytest.skip("nobody cannot reach this Python")
    assert done.returncode == 0, done.stderr


# -- who holds it ----------------------------------------------------------------------------------

OWN = """
from tests.support.postgres.server import Server
with Server(settings={"fsync": "off"}) as server:
    print(server.pid, server.directory, flush=True)
    input()
"""
SHARE = """
import sys
from pathlib import Path
from tests.support.postgres.shared import joined
with joined(Path(sys.argv[1]), version=int(sys.argv[2])) as cluster:
    print(cluster.url(), flush=True)
    input()
"""


def child(script: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATH},
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def is_up(url: str) -> bool:
    try:
        return bool(ask(url, "SELECT 1"))
    except psycopg.OperationalError:
        return False


def test_a_server_does_not_outlive_a_killed_owner() -> None:
    with child(OWN) as owner:
        pid, directory = line(owner).split()
        assert psutil.pid_exists(int(pid))
        owner.send_signal(signal.SIGKILL)
        until(lambda: not psutil.pid_exists(int(pid)), "the end of the server")
        until(lambda: not Path(directory).exists(), "the end of its directory")


def test_a_shared_server_lives_until_the_last_has_left_it(tmp_path: Path) -> None:
    version = versions()[0]
    with child(SHARE, str(tmp_path), str(version)) as first:
        url = line(first)
        with joined(tmp_path, version=version) as ours:
            assert ours.url() == url
            first.kill()
            first.wait()
            with child(SHARE, str(tmp_path), str(version)) as last:
                assert line(last) == url
                last.communicate("\n")
            assert last.returncode == 0
            assert is_up(url)
        until(lambda: not is_up(url), "the end of the server")
    until(lambda: not (tmp_path / f"postgres-{version}.url").exists(), "the end of its record")


def test_a_user_that_comes_while_a_shared_server_ends_gets_another(tmp_path: Path) -> None:
    version = versions()[-1]
    with joined(tmp_path, version=version) as first:
        assert is_up(first.url())
    for _ in range(3):
        with joined(tmp_path, version=version) as again:
            assert is_up(again.url())


def test_concurrent_users_share_one_server(tmp_path: Path) -> None:
    version = str(versions()[-1])
    crowd = [child(SHARE, str(tmp_path), version) for _ in range(4)]
    urls = {line(process) for process in crowd}
    for process in crowd:
        process.communicate("\n")
    assert len(urls) == 1
    assert urls.pop().startswith("postgresql://")


# -- a server that somebody else runs --------------------------------------------------------------


def test_the_url_of_a_given_server_keeps_what_it_says() -> None:
    given = Cluster("postgresql://me:se%40cret@db.example:6543/start?sslmode=require")
    assert given.url("x y") == "postgresql://me:se%40cret@db.example:6543/x%20y?sslmode=require"
    assert given.url("a", user="b@c") == "postgresql://b%40c@db.example:6543/a?sslmode=require"


def test_a_given_server_is_used_and_none_is_started(server: Server, tmp_path: Path) -> None:
    database = "SELECT count(*) FROM pg_database"
    before = ask(server.url(), database)
    chosen = f"{Path(__file__).parent / 'test_databases.py'}::test_each_test_begins_alike"
    told = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", chosen]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *told],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "WINDLASS_TEST_POSTGRES": server.url()},
    )
    assert done.returncode == 0, done.stdout
    assert not list((tmp_path / "base").glob("postgres-*"))
    assert ask(server.url(), database) == before
